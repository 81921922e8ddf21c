// The unigram model of a tokenizer.json: word by word, with sums in f64 and runs of unknown characters as one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/tokenizer/model.h"
#include "formats/tokenizer/tables.h"
#include "formats/tokenizer/unigram.h"

namespace plimsoll::formats::tokenizer {

struct UnigramOptions {
  std::string name;                     // of the file, for messages
  std::optional<std::int32_t> unknown;  // without one, text that the pieces cannot write is bad input
  bool byte_fallback = false;           // unknown text becomes its bytes' tokens if all of them exist
};

class UnigramWords final : public Model {
 public:
  // `vocabulary` must outlive the model; `scores` are by id.
  UnigramWords(const TextTable& vocabulary, const std::vector<double>& scores, const UnigramOptions& options);

  void encode_word(std::string_view word, std::size_t readable, Scratch& scratch, std::vector<std::int32_t>& ids) const override;

 private:
  void encode_anew(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void put(std::string_view text, std::vector<std::int32_t>& ids) const;

  const TextTable& vocabulary_;
  std::string name_;
  std::int32_t unknown_;  // past the vocabulary when there is none
  bool byte_fallback_;
  Unigram<double> unigram_;
};

}  // namespace plimsoll::formats::tokenizer

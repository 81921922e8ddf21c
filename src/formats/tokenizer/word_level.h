// Whole words as tokens: a word is in the vocabulary, or unknown.
#pragma once

#include <string>

#include "formats/tokenizer/model.h"
#include "formats/tokenizer/tables.h"

namespace plimsoll::formats::tokenizer {

class WordLevel final : public Model {
 public:
  // `vocabulary` must outlive the model. Without `unknown` in it, unknown words are bad input.
  WordLevel(const TextTable& vocabulary, const std::string& name, const std::string& unknown);

  void encode_word(std::string_view word, std::size_t readable, Scratch& scratch, std::vector<std::int32_t>& ids) const override;

 private:
  const TextTable& vocabulary_;
  std::string name_;
  std::int32_t unknown_;
};

}  // namespace plimsoll::formats::tokenizer

// WordPiece: the longest token that a word begins with, then the longest that goes on from there, and so on; a word that
// cannot be finished so is unknown as a whole.
#pragma once

#include <string>

#include "formats/tokenizer/model.h"
#include "formats/tokenizer/tables.h"

namespace plimsoll::formats::tokenizer {

struct WordPieceOptions {
  std::string name;  // of the file, for messages
  std::string unknown;
  std::string prefix = "##";        // of tokens that do not begin a word
  std::int64_t longest_word = 100;  // characters; longer words are unknown
};

class WordPiece final : public Model {
 public:
  WordPiece(const TextTable& vocabulary, const WordPieceOptions& options);

  void encode_word(std::string_view word, std::size_t readable, Scratch& scratch, std::vector<std::int32_t>& ids) const override;

 private:
  ByteTrie tokens_;
  std::int32_t continuing_ = 0;  // where tokens with the prefix go on; ByteTrie::kNone when there are none
  std::int32_t unknown_ = 0;
  std::int64_t longest_word_ = 0;
};

}  // namespace plimsoll::formats::tokenizer

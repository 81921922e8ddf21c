#include "formats/tokenizer/word_piece.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll::formats::tokenizer {

WordPiece::WordPiece(const TextTable& vocabulary, const WordPieceOptions& options) : longest_word_(options.longest_word) {
  for (std::int32_t id = 0; id < vocabulary.limit(); ++id) {
    const std::string_view token = vocabulary.text_of(id);
    if (!token.empty()) tokens_.add(token, id);
  }
  continuing_ = tokens_.walk(options.prefix);
  unknown_ = vocabulary.find(options.unknown);
  if (unknown_ == TextTable::kNone) {
    base::bad_input("'{}': the vocabulary does not have the token for unknown words, \"{}\"", options.name, options.unknown);
  }
}

void WordPiece::encode_word(std::string_view word, std::size_t /*readable*/, Scratch& /*scratch*/, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  const auto begins_character = [](char byte) { return (static_cast<std::uint8_t>(byte) & 0xC0) != 0x80; };
  bool known = std::count_if(word.begin(), word.end(), begins_character) <= longest_word_;
  std::int32_t node = 0;
  while (known && !word.empty()) {
    const ByteTrie::Match match = node == ByteTrie::kNone ? ByteTrie::Match{} : tokens_.longest(word, node);
    known = match.value != ByteTrie::kNone;
    if (known) ids.push_back(match.value);
    word.remove_prefix(match.length);
    node = continuing_;
  }
  if (known) return;
  ids.resize(before);
  ids.push_back(unknown_);
}

}  // namespace plimsoll::formats::tokenizer

// The "added_tokens" of a tokenizer.json: texts that are one token wherever they stand, found before anything else looks
// at the text (or, with "normalized", after it was normalised).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/tokenizer/normalizer.h"
#include "formats/tokenizer/pattern.h"
#include "formats/tokenizer/tables.h"

namespace plimsoll::formats::tokenizer {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // not within a longer word
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

std::vector<AddedToken> read_added_tokens(const base::Json& json);

// How a token stands in a text that is looked for it, and is written by decoding.
std::string text_of(const AddedToken& token, const Normalizers& normalizers);

struct Section {
  Range range;
  std::int32_t id = TextTable::kNone;  // kNone: text
};

// Cuts a text at tokens: the leftmost first, the longest of those that begin at the same place.
class TokenFinder {
 public:
  // Only the tokens whose `normalized` is as given; those are looked for as the normalizers leave them.
  TokenFinder(const std::vector<AddedToken>& tokens, bool normalized, const Normalizers& normalizers);

  void find(std::string_view text, std::vector<Section>& sections) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::size_t next_candidate(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;                   // contents -> index in tokens_
  std::array<bool, 256> begins_{};  // bytes that a token may begin with
  std::optional<char> only_begin_;  // when there is just one
};

}  // namespace plimsoll::formats::tokenizer

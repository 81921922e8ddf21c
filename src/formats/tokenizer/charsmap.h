// SentencePiece's precompiled normalisation: a trie of rules in a double array, and the texts that the rules give.
//
// The array is used as it lies in the file: a unit's low byte is the label under which its parent leads to it, and its
// upper bits say how far away its own children are. Each step is checked against the array's end, since a file may say anything.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::formats::tokenizer {

class Charsmap {
 public:
  Charsmap() = default;  // no rules
  Charsmap(std::string_view blob, const std::string& name);

  bool empty() const { return units_.empty(); }

  struct Rule {
    std::size_t length = 0;  // bytes of the input that it replaces; 0: no rule applies
    std::string_view text;
  };
  // The rule for the longest, or the shortest, beginning of `input` that has one.
  Rule longest(std::string_view input) const { return find(input, false); }
  Rule shortest(std::string_view input) const { return find(input, true); }

 private:
  Rule find(std::string_view input, bool first) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace plimsoll::formats::tokenizer

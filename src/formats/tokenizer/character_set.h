// Sets of characters, for the classes of expressions that PCRE2 cannot write: classes within classes and what they have in common.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll::formats::tokenizer {

class CharacterSet {
 public:
  struct Span {
    std::uint32_t first;
    std::uint32_t last;
  };

  CharacterSet() = default;
  explicit CharacterSet(std::vector<Span> spans) : spans_(std::move(spans)) { settle(); }

  void add(std::uint32_t first, std::uint32_t last);  // nothing where `last` comes first
  void add(const CharacterSet& other);
  CharacterSet complement() const;
  CharacterSet common(const CharacterSet& other) const;

  bool empty() const { return spans_.empty(); }
  std::string written() const;  // a class of PCRE2

 private:
  void settle();  // spans in order, none that touch

  std::vector<Span> spans_;
};

// The characters of a class that PCRE2 knows, given by what stands between its brackets: names of properties and escaped numbers.
CharacterSet characters_of(const std::string& inner);

}  // namespace plimsoll::formats::tokenizer

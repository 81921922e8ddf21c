// Splitting text by a pattern: the regular expressions of pre-tokenizers, and the same by hand where speed matters.
//
// The `tokenizers` package uses Oniguruma; patterns are rewritten for PCRE2 (regex.h), and the patterns of GPT-2 and
// Llama 3 are recognised and scanned by hand, several times as fast.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::formats::tokenizer {

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const Range&) const = default;
};

// What a step does where a space stands between two letters: it may depend on both sides, never does, or always cuts there
// (before the space, or taking it out).
enum class AtSpaces { unknown, indifferent, cuts };

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Appends the matches within `text` (valid UTF-8), from left to right, without overlap.
  virtual void find(std::string_view text, std::vector<Range>& matches) const = 0;
  // Every text is one match behind the other, without gaps.
  virtual bool covers() const { return false; }
  virtual AtSpaces at_spaces() const { return AtSpaces::unknown; }
};

std::unique_ptr<Pattern> literal_pattern(std::string text);

// The pattern of GPT-2's ByteLevel pre-tokenizer, by hand.
std::unique_ptr<Pattern> gpt2_pattern();

// By hand where the expression is one of the known ones; `where` names it in messages.
std::unique_ptr<Pattern> regex_pattern(const std::string& expression, const std::string& where);

}  // namespace plimsoll::formats::tokenizer

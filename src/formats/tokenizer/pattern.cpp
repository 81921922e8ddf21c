#include "formats/tokenizer/pattern.h"

#include <array>
#include <cstdint>

#include "formats/tokenizer/regex.h"
#include "formats/tokenizer/unicode.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::uint16_t kLetterNumberSpace = trait::kLetter | trait::kNumber | trait::kSpace;

class Literal final : public Pattern {
 public:
  explicit Literal(std::string text) : text_(std::move(text)) {}

  AtSpaces at_spaces() const override { return text_.find(' ') == std::string::npos ? AtSpaces::indifferent : AtSpaces::unknown; }

  void find(std::string_view text, std::vector<Range>& matches) const override {
    if (text_.empty()) return;
    for (std::size_t at = text.find(text_); at != std::string_view::npos; at = text.find(text_, at + text_.size())) {
      matches.push_back({at, at + text_.size()});
    }
  }

 private:
  std::string text_;
};

constexpr std::array<std::uint8_t, 128> make_ascii() {
  std::array<std::uint8_t, 128> traits{};
  for (char c = 'a'; c <= 'z'; ++c) traits[static_cast<std::size_t>(c)] = traits[static_cast<std::size_t>(c - 32)] = trait::kLetter;
  for (char c = '0'; c <= '9'; ++c) traits[static_cast<std::size_t>(c)] = trait::kNumber;
  for (char c = 9; c <= 13; ++c) traits[static_cast<std::size_t>(c)] = trait::kSpace;
  traits[' '] = trait::kSpace;
  return traits;
}
constexpr std::array<std::uint8_t, 128> kAscii = make_ascii();

// A cursor over valid UTF-8 with each character's traits. ASCII, which is most of most texts, takes one table lookup.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), table_(CharacterTable::get()) {}

  std::size_t size() const { return text_.size(); }
  char byte(std::size_t at) const { return at < text_.size() ? text_[at] : '\0'; }

  struct Seen {
    std::uint16_t traits = 0;  // the letter, number and space bits; 0 also at the end
    std::size_t next = 0;
  };
  Seen see(std::size_t at) const {
    if (at >= text_.size()) return {0, at};
    const auto lead = static_cast<std::uint8_t>(text_[at]);
    if (lead < 0x80) return {kAscii[lead], at + 1};
    const Character character = decode_at(text_.data() + at);
    return {static_cast<std::uint16_t>(table_.traits(character.code) & kLetterNumberSpace), at + character.length};
  }
  // The end of the run of characters with `bit`.
  std::size_t run(std::size_t at, std::uint16_t bit) const {
    while (at < text_.size()) {
      const Seen seen = see(at);
      if ((seen.traits & bit) == 0) break;
      at = seen.next;
    }
    return at;
  }
  // The end of the run of characters that are neither letters, numbers nor space.
  std::size_t run_of_others(std::size_t at) const {
    while (at < text_.size()) {
      const Seen seen = see(at);
      if (seen.traits != 0) break;
      at = seen.next;
    }
    return at;
  }
  // Where a run of white space beginning at `at` is to be cut: `\s+(?!\S)|\s+` leaves the last character to what follows.
  std::size_t space(std::size_t at) const {
    std::size_t last = at;
    std::size_t end = at;
    while (end < text_.size()) {
      const Seen seen = see(end);
      if ((seen.traits & trait::kSpace) == 0) break;
      last = end;
      end = seen.next;
    }
    return end == text_.size() || last == at ? end : last;
  }

 private:
  std::string_view text_;
  const CharacterTable& table_;
};

// Length of the contraction that follows the apostrophe at `at`, apostrophe included; 0 when there is none. Without
// regard to case, an s may also be the long one, U+017F.
std::size_t contraction(const Scanner& text, std::size_t at, bool any_case) {
  const auto letter = [&](std::size_t i) {
    const char c = text.byte(i);
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(at + 1);
  const char second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
  return any_case && first == '\xC5' && second == '\xBF' ? 3 : 0;
}

class Gpt2 final : public Pattern {
 public:
  bool covers() const override { return true; }
  AtSpaces at_spaces() const override { return AtSpaces::cuts; }
  void find(std::string_view text, std::vector<Range>& matches) const override {
    const Scanner scanner(text);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = match(scanner, at);
      matches.push_back({at, end});
      at = end;
    }
  }

 private:
  static std::size_t match(const Scanner& text, std::size_t at) {
    if (text.byte(at) == '\'') {
      const std::size_t length = contraction(text, at, false);
      if (length > 0) return at + length;
    }
    const std::size_t begin = text.byte(at) == ' ' ? at + 1 : at;
    const Scanner::Seen seen = text.see(begin);
    if ((seen.traits & trait::kLetter) != 0) return text.run(seen.next, trait::kLetter);
    if ((seen.traits & trait::kNumber) != 0) return text.run(seen.next, trait::kNumber);
    if (seen.traits == 0 && begin < text.size()) return text.run_of_others(seen.next);
    return text.space(at);
  }
};

class Llama3 final : public Pattern {
 public:
  explicit Llama3(int most_digits) : most_digits_(most_digits) {}

  bool covers() const override { return true; }
  AtSpaces at_spaces() const override { return AtSpaces::cuts; }
  void find(std::string_view text, std::vector<Range>& matches) const override {
    const Scanner scanner(text);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = match(scanner, at);
      matches.push_back({at, end});
      at = end;
    }
  }

 private:
  static bool is_line_end(char byte) { return byte == '\r' || byte == '\n'; }

  std::size_t match(const Scanner& text, std::size_t at) const {
    const char byte = text.byte(at);
    if (byte == '\'') {
      const std::size_t length = contraction(text, at, true);
      if (length > 0) return at + length;
    }
    const Scanner::Seen seen = text.see(at);
    if ((seen.traits & trait::kLetter) != 0) return text.run(seen.next, trait::kLetter);
    if ((seen.traits & trait::kNumber) != 0) return digits(text, seen.next);
    if (!is_line_end(byte)) {
      const Scanner::Seen after = text.see(seen.next);
      if ((after.traits & trait::kLetter) != 0) return text.run(after.next, trait::kLetter);
      if (byte == ' ' && after.traits == 0 && seen.next < text.size()) return others(text, after.next);
    }
    if (seen.traits == 0) return others(text, seen.next);
    const std::size_t line = after_last_line_end(text, at);
    return line > at ? line : text.space(at);
  }

  std::size_t digits(const Scanner& text, std::size_t at) const {
    for (int i = 1; i < most_digits_; ++i) {
      const Scanner::Seen seen = text.see(at);
      if ((seen.traits & trait::kNumber) == 0) break;
      at = seen.next;
    }
    return at;
  }

  static std::size_t others(const Scanner& text, std::size_t at) {
    at = text.run_of_others(at);
    while (is_line_end(text.byte(at))) ++at;
    return at;
  }

  // `\s*[\r\n]+`: up to the last line end of the run of white space; `at` when there is none.
  static std::size_t after_last_line_end(const Scanner& text, std::size_t at) {
    std::size_t found = at;
    while (at < text.size()) {
      const Scanner::Seen seen = text.see(at);
      if ((seen.traits & trait::kSpace) == 0) break;
      if (is_line_end(text.byte(at))) found = seen.next;
      at = seen.next;
    }
    return found;
  }

  int most_digits_;
};

}  // namespace

std::unique_ptr<Pattern> literal_pattern(std::string text) { return std::make_unique<Literal>(std::move(text)); }

std::unique_ptr<Pattern> gpt2_pattern() { return std::make_unique<Gpt2>(); }

std::unique_ptr<Pattern> regex_pattern(const std::string& expression, const std::string& where) {
  if (expression == kGpt2) return std::make_unique<Gpt2>();
  if (expression == kLlama3) return std::make_unique<Llama3>(3);
  if (expression == kQwen2) return std::make_unique<Llama3>(1);
  return std::make_unique<Regex>(expression, where);
}

}  // namespace plimsoll::formats::tokenizer

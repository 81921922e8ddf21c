// What characters are, as the `tokenizers` package sees them, and the Unicode normal forms.
//
// One 16-bit word of traits for each code point, in a two-level table made once from utf8proc and the generated
// differences in unicode_ranges.inc. Normal forms are utf8proc's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::formats::tokenizer {

// Bits of a character's traits.
namespace trait {
inline constexpr std::uint16_t kLetter = 1 << 0;       // L
inline constexpr std::uint16_t kNumber = 1 << 1;       // N
inline constexpr std::uint16_t kSpace = 1 << 2;        // White_Space
inline constexpr std::uint16_t kWord = 1 << 3;         // \w of Rust's expressions
inline constexpr std::uint16_t kPunctuation = 1 << 4;  // of Punctuation and BertPreTokenizer
inline constexpr std::uint16_t kNumeric = 1 << 5;      // of Digits
inline constexpr std::uint16_t kBertMark = 1 << 6;     // dropped by BertNormalizer's strip_accents
inline constexpr std::uint16_t kAccent = 1 << 7;       // dropped by StripAccents
inline constexpr std::uint16_t kBertControl = 1 << 8;  // dropped by BertNormalizer's clean_text
}  // namespace trait

class CharacterTable {
 public:
  static const CharacterTable& get();

  std::uint16_t traits(std::uint32_t code) const {
    if (code > 0x10FFFF) return 0;
    return blocks_[static_cast<std::size_t>(index_[code >> kShift]) << kShift | (code & (kBlock - 1))];
  }
  bool is(std::uint32_t code, std::uint16_t mask) const { return (traits(code) & mask) != 0; }

 private:
  static constexpr std::uint32_t kShift = 7;
  static constexpr std::uint32_t kBlock = 1 << kShift;

  CharacterTable();

  std::array<std::uint16_t, (0x110000 >> kShift)> index_{};
  std::vector<std::uint16_t> blocks_;
};

// The two letters of a general category, such as "Lu"; "Cn" when unassigned.
std::string_view category_of(std::uint32_t code);

struct CategoryRange {
  std::uint32_t first;
  std::uint32_t last;
  std::string_view category;
};

// Ranges whose category was given after Unicode 14 and begins with `category` ("L", "Lu").
std::vector<CategoryRange> newer_ranges(std::string_view category);
// Likewise of a property or script, in small letters: "alphabetic", "han".
std::vector<CategoryRange> newer_of_property(std::string_view name);

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// `text` is valid UTF-8.
std::string normalise(NormalForm form, std::string_view text);

// Where the cluster of characters that begins at `at` ends: what a reader takes for one character (extended grapheme clusters).
std::size_t cluster_end(std::string_view text, std::size_t at);

// Character by character, without regard to neighbours.
void append_lower(std::string& out, std::uint32_t code);

}  // namespace plimsoll::formats::tokenizer

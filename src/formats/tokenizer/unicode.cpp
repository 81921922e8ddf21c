#include "formats/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>

#include "base/error.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

struct CodeRange {
  std::uint32_t first;
  std::uint32_t last;
};

struct LowerRange {
  std::uint32_t first;
  std::uint32_t last;
  std::int32_t add;
};

#include "formats/tokenizer/unicode_ranges.inc"

template <typename Range>
const Range* find_range(std::span<const Range> ranges, std::uint32_t code) {
  const auto after = [](std::uint32_t value, const Range& range) { return value < range.first; };
  const auto next = std::upper_bound(ranges.begin(), ranges.end(), code, after);
  if (next == ranges.begin() || (next - 1)->last < code) return nullptr;
  return &*(next - 1);
}

bool toggled(bool value, std::span<const CodeRange> toggles, std::uint32_t code) { return value != (find_range(toggles, code) != nullptr); }

bool is_space(std::uint32_t code, std::string_view category) { return (code >= 9 && code <= 13) || code == 0x85 || category[0] == 'Z'; }

// Rust's \w has the join controls and not the numbers that are no digits, some letters apart.
bool is_word(std::uint32_t code, std::string_view category) {
  if (code == 0x200C || code == 0x200D || category == "Nl" || category == "Nd" || category == "Pc") return true;
  const bool circled_letter = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
                              (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  return category[0] == 'L' || category[0] == 'M' || circled_letter;
}

std::uint16_t traits_of(std::uint32_t code) {
  const std::string_view category = category_of(code);
  const bool ascii_mark = code > 32 && code < 127 && category[0] != 'L' && category[0] != 'N';
  std::uint16_t traits = 0;
  const auto set = [&](std::uint16_t bit, bool value) { traits = static_cast<std::uint16_t>(traits | (value ? bit : 0)); };
  set(trait::kLetter, category[0] == 'L');
  set(trait::kNumber, category[0] == 'N');
  set(trait::kSpace, is_space(code, category));
  set(trait::kWord, is_word(code, category));
  set(trait::kPunctuation, toggled(category[0] == 'P' || ascii_mark, kPunctuationToggles, code));
  set(trait::kNumeric, toggled(category[0] == 'N', kNumericToggles, code));
  set(trait::kBertMark, toggled(category == "Mn", kBertMarkToggles, code));
  set(trait::kAccent, toggled(category[0] == 'M', kAccentToggles, code));
  set(trait::kBertControl, toggled(category == "Cc" || category == "Cf" || category == "Co", kBertControlToggles, code));
  return traits;
}

// Nothing is assigned in these planes; asking for each of their characters would take most of the time.
bool is_empty_block(std::uint32_t first) {
  return (first >= 0x34000 && first < 0xE0000) || (first >= 0xE1000 && first < 0xF0000) || (first >= 0xF1000 && first < 0xFF000) ||
         (first >= 0x101000 && first < 0x10F000);
}

// A character that utf8proc knows to join its neighbours as `code` does in the package.
utf8proc_int32_t joins_like(std::uint32_t code) {
  const auto same = static_cast<utf8proc_int32_t>(code);
  if (code < 0x80) return same;
  if (find_range<CodeRange>(kClusterMarks, code) != nullptr) return 0x301;
  if (find_range<CodeRange>(kClusterControls, code) != nullptr) return 0x01;
  if (find_range<CodeRange>(kClusterPictographToggles, code) == nullptr) return same;
  return utf8proc_get_property(same)->boundclass == UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC ? 'a' : 0x1F600;
}

bool is_normal_by_range(NormalForm form, std::string_view text) {
  if (is_ascii(text)) return true;
  if (form != NormalForm::nfc) return false;
  // NFC leaves everything below U+0300 alone; its lead bytes are below 0xCC.
  return std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<std::uint8_t>(byte) < 0xCC; });
}

void append_normal(std::string& out, NormalForm form, std::string_view text) {
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &result,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> keeper(result, &std::free);
  if (size < 0) base::bad_input("a text of {} bytes cannot be normalised: {}", text.size(), utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
}

}  // namespace

std::string_view category_of(std::uint32_t code) {
  if (const CategoryRange* newer = find_range<CategoryRange>(kNewerCategories, code)) return newer->category;
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(code));
}

std::vector<CategoryRange> newer_ranges(std::string_view category) {
  std::vector<CategoryRange> found;
  for (const CategoryRange& range : kNewerCategories) {
    if (range.category.starts_with(category)) found.push_back(range);
  }
  return found;
}

std::vector<CategoryRange> newer_of_property(std::string_view name) {
  std::vector<CategoryRange> found;
  for (const CategoryRange& range : kNewerProperties) {
    if (range.category == name) found.push_back(range);
  }
  return found;
}

CharacterTable::CharacterTable() {
  std::map<std::vector<std::uint16_t>, std::uint16_t> known;
  std::vector<std::uint16_t> block(kBlock);
  for (std::uint32_t first = 0; first < 0x110000; first += kBlock) {
    if (is_empty_block(first)) {  // like its left neighbour, which is of the same kind throughout
      index_[first >> kShift] = index_[(first >> kShift) - 1];
      continue;
    }
    for (std::uint32_t i = 0; i < kBlock; ++i) block[i] = traits_of(first + i);
    const auto [entry, added] = known.try_emplace(block, static_cast<std::uint16_t>(known.size()));
    if (added) blocks_.insert(blocks_.end(), block.begin(), block.end());
    index_[first >> kShift] = entry->second;
  }
}

const CharacterTable& CharacterTable::get() {
  static const CharacterTable table;
  return table;
}

std::string normalise(NormalForm form, std::string_view text) {
  if (is_normal_by_range(form, text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = decode_at(text.data() + at);
    if (character.code >= 0x300 && find_range<CodeRange>(kKept, character.code) != nullptr) {
      append_normal(out, form, text.substr(begin, at - begin));
      out += text.substr(at, character.length);
      begin = at + character.length;
    }
    at += character.length;
  }
  append_normal(out, form, text.substr(begin));
  return out;
}

std::size_t cluster_end(std::string_view text, std::size_t at) {
  Character left = decode_at(text.data() + at);
  utf8proc_int32_t state = 0;
  for (at += left.length; at < text.size(); at += left.length) {
    const Character right = decode_at(text.data() + at);
    if (left.code < 0x80 && right.code < 0x80 && left.code != '\r') break;  // most text
    if (utf8proc_grapheme_break_stateful(joins_like(left.code), joins_like(right.code), &state)) break;
    left = right;
  }
  return at;
}

void append_lower(std::string& out, std::uint32_t code) {
  if (code == 0x130) {  // the one character whose lower case is two
    out += "i\xCC\x87";
    return;
  }
  if (const LowerRange* newer = find_range<LowerRange>(kNewerLower, code)) {
    return append_utf8(out, static_cast<std::uint32_t>(static_cast<std::int32_t>(code) + newer->add));
  }
  append_utf8(out, static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

}  // namespace plimsoll::formats::tokenizer

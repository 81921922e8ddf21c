#include "formats/tokenizer/character_set.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr CharacterSet::Span kSurrogates{0xD800, 0xDFFF};  // which are in no text, and PCRE2 does not want to see

// Characters are asked for one by one up to `asked`; the rest of each stretch, up to `last`, is like its first one: nothing has been
// assigned there, or all of it to private use.
struct LikeCharacters {
  std::uint32_t first;
  std::uint32_t asked;
  std::uint32_t last;
};
constexpr std::array<LikeCharacters, 9> kStretches{{{0x0, 0xD7FF, 0xD7FF},
                                                    {0xE000, 0x3FFFF, 0x3FFFF},
                                                    {0x40000, 0x40000, 0xDFFFF},
                                                    {0xE0000, 0xE0FFF, 0xE0FFF},
                                                    {0xE1000, 0xE1000, 0xEFFFF},
                                                    {0xF0000, 0xF0000, 0xFFFFD},
                                                    {0xFFFFE, 0xFFFFE, 0xFFFFF},
                                                    {0x100000, 0x100000, 0x10FFFD},
                                                    {0x10FFFE, 0x10FFFE, kLastCharacter}}};

// The characters that are asked for, stretch by stretch; a megabyte, made once.
const std::array<std::string, kStretches.size()>& asked_characters() {
  static const auto kTexts = [] {
    std::array<std::string, kStretches.size()> texts;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      for (std::uint32_t code = kStretches[i].first; code <= kStretches[i].asked; ++code) append_utf8(texts[i], code);
    }
    return texts;
  }();
  return kTexts;
}

}  // namespace

void CharacterSet::add(std::uint32_t first, std::uint32_t last) {
  if (first > last) return;
  spans_.push_back({first, last});
  settle();
}

void CharacterSet::add(const CharacterSet& other) {
  spans_.insert(spans_.end(), other.spans_.begin(), other.spans_.end());
  settle();
}

void CharacterSet::settle() {
  std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return a.first < b.first; });
  std::vector<Span> joined;
  for (const Span& span : spans_) {
    if (!joined.empty() && span.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, span.last);
    } else {
      joined.push_back(span);
    }
  }
  spans_ = std::move(joined);
}

CharacterSet CharacterSet::complement() const {
  CharacterSet rest;
  std::uint32_t next = 0;
  for (const Span& span : spans_) {
    if (span.first > next) rest.spans_.push_back({next, span.first - 1});
    next = span.last + 1;
  }
  if (next <= kLastCharacter) rest.spans_.push_back({next, kLastCharacter});
  return rest;
}

CharacterSet CharacterSet::common(const CharacterSet& other) const {
  CharacterSet outside = complement();
  outside.add(other.complement());
  return outside.complement();
}

std::string CharacterSet::written() const {
  std::string text = "[";
  for (Span span : spans_) {
    if (span.first >= kSurrogates.first && span.first <= kSurrogates.last) span.first = kSurrogates.last + 1;
    if (span.last >= kSurrogates.first && span.last <= kSurrogates.last) span.last = kSurrogates.first - 1;
    if (span.first <= span.last) text += fmt::format(R"(\x{{{:x}}}-\x{{{:x}}})", span.first, span.last);
  }
  return text == "[" ? "(?!)" : text + "]";
}

CharacterSet characters_of(const std::string& inner) {
  const std::string expression = "[" + inner + "]+";
  int error = 0;
  std::size_t offset = 0;
  const auto free_code = [](pcre2_code* code) { pcre2_code_free(code); };
  const std::unique_ptr<pcre2_code, decltype(free_code)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr),
      free_code);
  if (code == nullptr) base::bad_input("PCRE2 knows no characters [{}]", inner);
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  const auto free_data = [](pcre2_match_data* data) { pcre2_match_data_free(data); };
  const std::unique_ptr<pcre2_match_data, decltype(free_data)> data(pcre2_match_data_create_from_pattern(code.get(), nullptr), free_data);
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(data.get());
  std::vector<CharacterSet::Span> spans;
  for (std::size_t i = 0; i < kStretches.size(); ++i) {
    const std::string& text = asked_characters()[i];
    for (std::size_t at = 0; at < text.size(); at = found[1]) {
      if (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), nullptr) < 0)
        break;
      const std::uint32_t first = decode_at(text.data() + found[0]).code;
      const bool to_the_end = found[1] == text.size();
      const std::uint32_t last = to_the_end ? kStretches[i].last : decode_at(text.data() + found[1]).code - 1;
      spans.push_back({first, last});
    }
  }
  return CharacterSet(std::move(spans));
}

}  // namespace plimsoll::formats::tokenizer

#include "formats/tokenizer/utf8.h"

#include <cstring>

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080u;

std::size_t ascii_prefix(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & kHighBits) != 0) break;
  }
  while (i < text.size() && static_cast<std::uint8_t>(text[i]) < 0x80) ++i;
  return i;
}

struct Sequence {
  std::size_t bytes = 1;  // that belong together
  bool whole = false;     // they make a character
};

// What begins with the non-ASCII byte at the front of `text`.
Sequence sequence_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0xC2 || lead > 0xF4) return {};
  // The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  const std::size_t length = length_of(text[0]);
  for (std::size_t i = 1; i < length; ++i) {
    const bool fits = i < text.size() && byte(i) >= (i == 1 ? low : 0x80) && byte(i) <= (i == 1 ? high : 0xBF);
    if (!fits) return {i, false};
  }
  return {length, true};
}

}  // namespace

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

std::size_t valid_prefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    if (static_cast<std::uint8_t>(text[i]) < 0x80) {
      i += ascii_prefix(text.substr(i));
      continue;
    }
    const Sequence sequence = sequence_at(text.substr(i));
    if (!sequence.whole) return i;
    i += sequence.bytes;
  }
  return i;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t good = valid_prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    out.append(kReplacement);
    text.remove_prefix(sequence_at(text).bytes);
  }
  return out;
}

bool is_ascii(std::string_view text) { return ascii_prefix(text) == text.size(); }

}  // namespace plimsoll::formats::tokenizer

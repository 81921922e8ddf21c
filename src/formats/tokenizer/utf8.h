// UTF-8 by hand: decoding that trusts its input, and the one function that makes input trustworthy.
//
// Everything behind Tokenizer::encode works on text that `valid_utf8` has passed, so that inner loops need no checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll::formats::tokenizer {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";    // U+2581, which vocabularies have for a space
inline constexpr std::uint32_t kLastCharacter = 0x10FFFF;

// Bytes of the character that begins with `lead`, of valid text.
inline std::size_t length_of(char lead) {
  const auto byte = static_cast<std::uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

struct Character {
  std::uint32_t code = 0;
  std::size_t length = 0;
};

// The character at `at`, which must begin one of valid text.
inline Character decode_at(const char* at) {
  const auto* byte = reinterpret_cast<const std::uint8_t*>(at);
  const auto tail = [&](int i) { return static_cast<std::uint32_t>(byte[i] & 0x3F); };
  if (byte[0] < 0x80) return {byte[0], 1};
  if (byte[0] < 0xE0) return {(byte[0] & 0x1Fu) << 6 | tail(1), 2};
  if (byte[0] < 0xF0) return {(byte[0] & 0x0Fu) << 12 | tail(1) << 6 | tail(2), 3};
  return {(byte[0] & 0x07u) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

void append_utf8(std::string& out, std::uint32_t code);

// Length of the longest prefix that is well-formed.
std::size_t valid_prefix(std::string_view text);

inline bool valid_utf8(std::string_view text) { return valid_prefix(text) == text.size(); }

// Each longest beginning of a character that does not go on, and each byte that begins none, becomes one U+FFFD.
std::string repair_utf8(std::string_view text);

bool is_ascii(std::string_view text);

}  // namespace plimsoll::formats::tokenizer

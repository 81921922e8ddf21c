#include "formats/tokenizer/byte_level.h"

#include <array>

#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::uint32_t kFirstExtra = 0x100;
constexpr std::uint32_t kLimit = 0x144;

constexpr bool is_visible(std::uint32_t code) { return (code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code != 0xAD); }

struct Alphabet {
  std::array<std::uint16_t, 256> characters{};
  std::array<std::int16_t, kLimit> bytes{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (std::int16_t& byte : alphabet.bytes) byte = -1;
  std::uint32_t next = kFirstExtra;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const std::uint32_t code = is_visible(byte) ? byte : next++;
    alphabet.characters[byte] = static_cast<std::uint16_t>(code);
    alphabet.bytes[code] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::uint32_t character_of_byte(std::uint8_t byte) { return kAlphabet.characters[byte]; }

std::optional<std::uint8_t> byte_of_character(std::uint32_t code) {
  if (code >= kLimit || kAlphabet.bytes[code] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(kAlphabet.bytes[code]);
}

std::string bytes_to_characters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(out, character_of_byte(static_cast<std::uint8_t>(byte)));
  return out;
}

std::optional<std::string> characters_to_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Character character = decode_at(text.data() + i);
    const auto byte = byte_of_character(character.code);
    if (!byte) return std::nullopt;
    out.push_back(static_cast<char>(*byte));
    i += character.length;
  }
  return out;
}

}  // namespace plimsoll::formats::tokenizer

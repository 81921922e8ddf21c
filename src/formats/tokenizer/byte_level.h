// The byte-level alphabet: each byte written as one visible character, as GPT-2's vocabulary stores them.
//
// Bytes that are visible characters of Latin-1 stand for themselves; the other 68 are the characters from U+0100 on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll::formats::tokenizer {

std::uint32_t character_of_byte(std::uint8_t byte);
std::optional<std::uint8_t> byte_of_character(std::uint32_t code);

std::string bytes_to_characters(std::string_view bytes);
// nullopt when a character stands for no byte. `text` is valid UTF-8.
std::optional<std::string> characters_to_bytes(std::string_view text);

}  // namespace plimsoll::formats::tokenizer

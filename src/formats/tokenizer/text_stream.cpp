#include "formats/tokenizer/text_stream.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace plimsoll::formats::tokenizer {

namespace {

// How many bytes follow a lead byte, and the range of the first of them; later ones are 80..BF.
struct Lead {
  std::size_t following = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
};

Lead lead_of(std::uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {};
}

// True if the text begins a character and more bytes might complete it.
bool begins_character(std::string_view text) {
  const auto byte_at = [&](std::size_t index) { return static_cast<std::uint8_t>(text[index]); };
  const Lead lead = lead_of(byte_at(0));
  if (text.size() > lead.following) return false;
  for (std::size_t index = 1; index < text.size(); ++index) {
    const std::uint8_t low = index == 1 ? lead.low : 0x80;
    const std::uint8_t high = index == 1 ? lead.high : 0xBF;
    if (byte_at(index) < low || byte_at(index) > high) return false;
  }
  return true;
}

}  // namespace

std::string TextStream::push(std::string_view bytes) {
  kept_ += bytes;
  // Only the last three bytes can be the beginning of a character that is not yet whole.
  constexpr std::size_t kLongestBeginning = 3;
  std::size_t ready = kept_.size();
  for (std::size_t back = 1; back <= std::min(kLongestBeginning, kept_.size()); ++back) {
    const std::size_t at = kept_.size() - back;
    if (begins_character(std::string_view(kept_).substr(at))) ready = at;
  }
  const std::string shown = kept_.substr(0, ready);
  kept_.erase(0, ready);
  return shown;
}

std::string TextStream::finish() {
  std::string rest;
  rest.swap(kept_);
  return rest;
}

}  // namespace plimsoll::formats::tokenizer

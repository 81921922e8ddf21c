#include "base/crc32c.h"

#include <array>
#include <bit>

namespace plimsoll::base {

namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78u;
constexpr std::uint32_t kMaskOffset = 0xA282EAD8u;

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1u) != 0 ? kReflectedPolynomial : 0u);
    table[byte] = rest;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view data, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (const char letter : data) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint8_t>(letter)) & 0xFFu];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view data) { return std::rotr(crc32c(data), 15) + kMaskOffset; }

}  // namespace plimsoll::base

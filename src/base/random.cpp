#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace plimsoll::base {

std::array<float, 2> normal_from_bits(std::uint32_t a, std::uint32_t b) {
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 1.0) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(b) * 0x1p-32;
  return {static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))};
}

std::uint64_t permute(std::uint64_t index, std::uint64_t count, RandomKey key) {
  PLIMSOLL_CHECK(index < count, "index {} of {}", index, count);
  const int half_bits = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const std::uint64_t mask = (1ull << half_bits) - 1;
  std::uint64_t walked = index;
  do {
    std::uint64_t left = walked >> half_bits;
    std::uint64_t right = walked & mask;
    for (std::uint32_t round = 0; round < 6; ++round) {
      const RandomBlock mixed = philox({static_cast<std::uint32_t>(right), static_cast<std::uint32_t>(right >> 32), round, 0x5EEDu}, key);
      const std::uint64_t next = left ^ ((static_cast<std::uint64_t>(mixed[1]) << 32 | mixed[0]) & mask);
      left = right;
      right = next;
    }
    walked = left << half_bits | right;
  } while (walked >= count);
  return walked;
}

}  // namespace plimsoll::base

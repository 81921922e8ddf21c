// int4: codes -7 .. 7, stored with 8 added, two to a byte with the first of them in its lower half; 64 elements in 34 bytes. Relative to
// the largest of its block, an element is off by 1/14 at most.
#pragma once

#include <string_view>

#include "ops/forms/block_codes.h"

namespace plimsoll::ops {

struct Int4Codes {
  static constexpr std::string_view kName = "int4";
  static constexpr int kBlock = 64;
  static constexpr int kBits = 4;
  static constexpr float kLargest = 7.0f;

  template <typename Rounding>
  PLIMSOLL_HOST_DEVICE static std::uint32_t code(float ratio, const Rounding& rounding, int element) {
    return (rounding.integer(ratio, element) + 8u) & 0xFu;
  }
  PLIMSOLL_HOST_DEVICE static float value(std::uint32_t code) { return static_cast<float>(static_cast<std::int32_t>(code) - 8); }
};

}  // namespace plimsoll::ops

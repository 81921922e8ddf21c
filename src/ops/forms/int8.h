// int8: codes -127 .. 127, 64 elements in 66 bytes. Relative to the largest of its block, an element is off by 1/254 at most.
#pragma once

#include <string_view>

#include "ops/forms/block_codes.h"

namespace plimsoll::ops {

struct Int8Codes {
  static constexpr std::string_view kName = "int8";
  static constexpr int kBlock = 64;
  static constexpr int kBits = 8;
  static constexpr float kLargest = 127.0f;

  template <typename Rounding>
  PLIMSOLL_HOST_DEVICE static std::uint32_t code(float ratio, const Rounding& rounding, int element) {
    return rounding.integer(ratio, element) & 0xFFu;
  }
  PLIMSOLL_HOST_DEVICE static float value(std::uint32_t code) { return static_cast<float>(static_cast<std::int32_t>(code ^ 0x80u) - 128); }
};

}  // namespace plimsoll::ops

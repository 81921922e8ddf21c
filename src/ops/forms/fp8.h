// fp8: codes are e4m3 numbers (base::DType::f8e4m3), 64 elements in 66 bytes. An element keeps 4 significant bits, down to 2^-6 / 448 of
// the largest of its block; below that it is off by 2^-10 / 448 of it at most.
#pragma once

#include <string_view>

#include "ops/forms/block_codes.h"

namespace plimsoll::ops {

struct Fp8Codes {
  static constexpr std::string_view kName = "fp8";
  static constexpr int kBlock = 64;
  static constexpr int kBits = 8;
  static constexpr float kLargest = 448.0f;

  // An e4m3 number has the upper bits of an f32 one, its exponent less 120; below 2^-6 it counts steps of 2^-9.
  static constexpr std::uint32_t kExponents = 120u << 23;
  static constexpr int kDropped = 20;
  static constexpr float kSmallestNormal = 0x1p-6f;
  static constexpr float kStep = 0x1p-9f;

  template <typename Rounding>
  PLIMSOLL_HOST_DEVICE static std::uint32_t code(float ratio, const Rounding& rounding, int element) {
    const std::uint32_t bits = bits_of(ratio);
    const float magnitude = float_of(bits & 0x7FFFFFFFu);
    const std::uint32_t normal = (rounding.template cut<kDropped>(bits & 0x7FFFFFFFu, element) - kExponents) >> kDropped;
    const std::uint32_t steps = rounding.integer(magnitude < kSmallestNormal ? magnitude * (1.0f / kStep) : 0.0f, element) & 0xFu;
    return (magnitude < kSmallestNormal ? steps : normal) | (bits >> 24 & 0x80u);
  }
  PLIMSOLL_HOST_DEVICE static float value(std::uint32_t code) {
    const std::uint32_t magnitude = code & 0x7Fu;
    const float steps = static_cast<float>(static_cast<std::int32_t>(magnitude)) * kStep;
    const std::uint32_t bits = magnitude < 8u ? bits_of(steps) : (magnitude << kDropped) + kExponents;
    return float_of(bits | (code & 0x80u) << 24);
  }
};

}  // namespace plimsoll::ops

// Forms in which weights and optimizer state take half the bytes of f32, for host and device alike, to the same bits.
//
// Rounding at random: a number goes to one of its two neighbours in bf16 with the odds that make the mean the number itself, so that
// updates too small for bf16 are not lost but done now and then. The random bits of an element are drawn from what it is updated from
// (gradient, weight, first average) under a key of the run's seed and the update's number. So they do not depend on who updates the
// element, in which piece of which tensor, and every layout gives the same bits where its gradients are the same; elements that are alike
// in all three stay alike.
//
// Split: a weight in bf16 is its f32 number rounded to nearest even, and the 16 bits that this leaves out lie beside it. Together they are
// the number, but for one bit: where the lower half is exactly 0x8000, the weight may have been rounded down or up to an even one. Adam's
// second average is never negative: its sign says it (negative: down). So a split master is the f32 master to the last bit.
#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.h"
#include "base/random.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

PLIMSOLL_HOST_DEVICE inline std::uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

PLIMSOLL_HOST_DEVICE inline float float_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// ---- rounding at random

// A bijection of words in which every bit of the result depends on every bit of the operand: two multiplications between shifts.
inline constexpr std::uint32_t kMixFirst = 0x85EBCA6Bu;
inline constexpr std::uint32_t kMixSecond = 0xC2B2AE35u;
inline constexpr std::uint32_t kMixThird = 0x9E3779B1u;

PLIMSOLL_HOST_DEVICE inline std::uint32_t mixed(std::uint32_t word) {
  word = (word ^ (word >> 16)) * kMixFirst;
  word = (word ^ (word >> 13)) * kMixSecond;
  return word ^ (word >> 16);
}

inline constexpr std::uint64_t kRoundingPurpose = base::hash_name("rounding of states");

PLIMSOLL_HOST_DEVICE inline base::RandomKey rounding_key(const StepScalars& scalars) {
  return base::random_key(scalars.seed, kRoundingPurpose + static_cast<std::uint64_t>(scalars.updates));
}

// 16 bits for each of what an update writes: the weight, the first average (or velocity), the second.
struct RoundingBits {
  std::uint32_t weight, first, second;
};

// Of what the element is before the update; adding zero makes the two zeros one.
PLIMSOLL_HOST_DEVICE inline RoundingBits rounding_bits(base::RandomKey key, float gradient, float weight, float first) {
  const std::uint32_t average = bits_of(first + 0.0f);
  std::uint32_t word = mixed(bits_of(gradient + 0.0f) ^ key[0]);
  word = mixed(word ^ key[1] ^ bits_of(weight + 0.0f) ^ (average >> 16 | average << 16));
  return {word & 0xFFFFu, word >> 16, (word * kMixThird) >> 16};
}

// The bf16 code of a number: cut off after 16 random bits were added below. Infinities stay, and so does what is not a number.
PLIMSOLL_HOST_DEVICE inline std::uint16_t bf16_at_random(float value, std::uint32_t random) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7F800000u) != 0x7F800000u) return static_cast<std::uint16_t>((bits + random) >> 16);
  return static_cast<std::uint16_t>((bits >> 16) | ((bits & 0x7FFFFFu) != 0 ? 0x40u : 0u));
}

// ---- split

struct SplitNumber {
  std::uint16_t high;  // bf16, rounded to nearest even
  std::uint16_t low;
  bool down;  // from the middle between two
};

PLIMSOLL_HOST_DEVICE inline SplitNumber split_number(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t odd = (bits >> 16) & 1u;
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const std::uint32_t high = nan ? (bits >> 16) | 0x40u : (bits + 0x7FFFu + odd) >> 16;
  return {static_cast<std::uint16_t>(high), static_cast<std::uint16_t>(bits), (bits & 0xFFFFu) == 0x8000u && odd == 0};
}

PLIMSOLL_HOST_DEVICE inline float joined(SplitNumber number) {
  const std::uint32_t low = number.low;
  const std::uint32_t rounded_up = (low + (number.down ? 0x7FFFu : 0x8000u)) >> 16;
  return float_of(((number.high - rounded_up) << 16) | low);
}

}  // namespace plimsoll::ops

// The random bits that forms round with, for host and device alike, to the same bits.
//
// Rounding at random: a number goes to one of its two neighbours in the form with the odds that make the mean the number itself, so that
// updates too small for the form are not lost but done now and then. The random bits of an element are drawn from what it is updated from
// (gradient, weight, first average) under a key of the run's seed and the update's number. So they do not depend on who updates the
// element, in which piece of which tensor, and every layout gives the same bits where its gradients are the same; elements that are alike
// in all three stay alike.
#pragma once

#include "base/random.h"
#include "ops/forms/bits.h"

namespace plimsoll::ops {

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

// Of the run's seed and the updates that have been made.
PLIMSOLL_HOST_DEVICE inline base::RandomKey rounding_key(std::uint64_t seed, std::int64_t updates) {
  return base::random_key(seed, kRoundingPurpose + static_cast<std::uint64_t>(updates));
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

}  // namespace plimsoll::ops

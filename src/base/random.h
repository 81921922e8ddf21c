// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011): a pure function from (key, counter) to 128 bits.
//
// Nothing in Plimsoll keeps generator state. What a number is drawn for names it: dropout by (seed, site) and
// (step, sample, element), initial weights by (seed, tensor name) and element. So the numbers do not depend on how
// the work is split, ordered or resumed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/host_device.h"

namespace plimsoll::base {

using RandomBlock = std::array<std::uint32_t, 4>;
using RandomKey = std::array<std::uint32_t, 2>;

inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u;
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

PLIMSOLL_HOST_DEVICE inline RandomBlock philox(RandomBlock counter, RandomKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = static_cast<std::uint64_t>(kPhiloxMultiplier0) * counter[0];
    const std::uint64_t product1 = static_cast<std::uint64_t>(kPhiloxMultiplier1) * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

// FNV-1a; stable across platforms and versions because stored runs depend on it.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (char letter : name) {
    hash ^= static_cast<std::uint8_t>(letter);
    hash *= 0x100000001B3ull;
  }
  return hash;
}

// The key for one purpose (a dropout site, a tensor's initial values) under one seed.
PLIMSOLL_HOST_DEVICE inline RandomKey random_key(std::uint64_t seed, std::uint64_t purpose) {
  const RandomBlock mixed = philox({static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(purpose >> 32), 0, 0},
                                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return {mixed[0], mixed[1]};
}

// In [0, 1): 24 bits, exact in f32.
inline float uniform_from_bits(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// A pair of independent standard normals from two 32-bit words (Box-Muller, in double for the tails).
std::array<float, 2> normal_from_bits(std::uint32_t a, std::uint32_t b);

// A bijection of [0, count) chosen by key: Feistel rounds over the next power of four with cycle walking, so the
// n-th sample of a shuffled epoch is found without storing the permutation.
std::uint64_t permute(std::uint64_t index, std::uint64_t count, RandomKey key);

}  // namespace plimsoll::base

// Stored runs depend on these numbers: the pinned values must never change.
#include "base/random.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

constexpr std::uint32_t kOnes = 0xFFFFFFFFu;

// The known-answer vectors of Random123 for philox4x32, 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (RandomBlock{0x6627E8D5u, 0xE169C58Du, 0xBC57AC4Cu, 0x9B00DBD8u}));
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}), (RandomBlock{0x408F276Du, 0x41C83B0Eu, 0xA20BC7C6u, 0x6D5451FDu}));
  EXPECT_EQ(philox({0x243F6A88u, 0x85A308D3u, 0x13198A2Eu, 0x03707344u}, {0xA4093822u, 0x299F31D0u}),
            (RandomBlock{0xD16CFE09u, 0x94FDCCEBu, 0x5001E420u, 0x24126EA1u}));
}

// The published values of 64-bit FNV-1a.
TEST(HashName, KnownAnswers) {
  EXPECT_EQ(hash_name(""), 0xCBF29CE484222325ull);
  EXPECT_EQ(hash_name("a"), 0xAF63DC4C8601EC8Cull);
  EXPECT_EQ(hash_name("foobar"), 0x85944171F73967E8ull);
}

TEST(RandomKey, DiffersBySeedAndPurpose) {
  std::set<RandomKey> keys;
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull}) {
    for (std::uint64_t purpose : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, hash_name("blocks.0.attention")})
      keys.insert(random_key(seed, purpose));
  }
  EXPECT_EQ(keys.size(), 16u);
}

TEST(Uniform, CoversZeroToOneExclusive) {
  EXPECT_EQ(uniform_from_bits(0), 0.0f);
  EXPECT_EQ(uniform_from_bits(0x80000000u), 0.5f);
  EXPECT_EQ(uniform_from_bits(kOnes), 1.0f - 0x1p-24f);
}

TEST(Normal, IsFiniteAtTheEnds) {
  for (std::uint32_t a : {0u, 1u, kOnes}) {
    for (std::uint32_t b : {0u, 0x40000000u, kOnes}) {
      for (float value : normal_from_bits(a, b)) EXPECT_TRUE(std::isfinite(value)) << a << ' ' << b;
    }
  }
  EXPECT_NEAR(normal_from_bits(0, 0)[0], std::sqrt(64.0 * std::log(2.0)), 1e-5);  // the farthest tail: 6.66
}

TEST(Normal, HasTheMomentsOfANormal) {
  constexpr int kBlocks = 100'000;
  double mean = 0, square = 0, cube = 0, fourth = 0, product = 0;
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    const RandomBlock bits = philox({block, 0, 0, 0}, {7, 0});
    const std::array<float, 2> pair = normal_from_bits(bits[0], bits[1]);
    product += pair[0] * pair[1];
    for (double value : pair) {
      mean += value;
      square += value * value;
      cube += value * value * value;
      fourth += value * value * value * value;
    }
  }
  const double count = 2.0 * kBlocks;
  // Four standard errors each: 1, sqrt 2, sqrt 15, sqrt 96 over sqrt(count).
  EXPECT_NEAR(mean / count, 0.0, 0.009);
  EXPECT_NEAR(square / count, 1.0, 0.013);
  EXPECT_NEAR(cube / count, 0.0, 0.035);
  EXPECT_NEAR(fourth / count, 3.0, 0.088);
  EXPECT_NEAR(product / kBlocks, 0.0, 0.013);
}

std::vector<std::uint64_t> permutation(std::uint64_t count, RandomKey key) {
  std::vector<std::uint64_t> order(count);
  for (std::uint64_t index = 0; index < count; ++index) order[index] = permute(index, count, key);
  return order;
}

void expect_bijection(std::uint64_t count, RandomKey key) {
  std::vector<bool> seen(count, false);
  for (std::uint64_t value : permutation(count, key)) {
    ASSERT_LT(value, count);
    ASSERT_FALSE(seen[value]) << value << " twice of " << count;
    seen[value] = true;
  }
}

TEST(Permute, IsABijectionForEverySmallCount) {
  for (std::uint64_t count = 1; count <= 300; ++count) {
    expect_bijection(count, {1, 2});
    expect_bijection(count, random_key(count, 9));
  }
}

TEST(Permute, IsABijectionAroundPowersOfTwo) {
  for (std::uint64_t power : {1024u, 4096u, 16384u}) {
    for (std::uint64_t count = power - 1; count <= power + 1; ++count) expect_bijection(count, {3, 4});
  }
  expect_bijection(31'102, {5, 6});
}

TEST(Permute, StaysDistinctInHugeRanges) {
  for (std::uint64_t count : {(1ull << 40) + 3, (1ull << 63) + 1, ~0ull}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t index = 0; index < 500; ++index) {
      seen.insert(permute(index, count, {7, 8}));
      seen.insert(permute(count - 1 - index, count, {7, 8}));
    }
    EXPECT_EQ(seen.size(), 1000u);
    EXPECT_LT(*seen.rbegin(), count);
  }
}

TEST(Permute, MixesAndDependsOnTheKey) {
  const std::vector<std::uint64_t> first = permutation(1000, {1, 0});
  const std::vector<std::uint64_t> second = permutation(1000, {2, 0});
  int in_place = 0, equal = 0, neighbours = 0;
  for (std::uint64_t index = 0; index < 1000; ++index) {
    in_place += first[index] == index;
    equal += first[index] == second[index];
    neighbours += index > 0 && first[index] == first[index - 1] + 1;
  }
  // One expected of each by chance; ten would be a broken mixer.
  EXPECT_LT(in_place, 10);
  EXPECT_LT(equal, 10);
  EXPECT_LT(neighbours, 10);
}

TEST(Permute, PinnedValues) { EXPECT_EQ(permutation(10, {1, 2}), (std::vector<std::uint64_t>{7, 3, 6, 5, 0, 9, 8, 2, 4, 1})); }

TEST(PermuteDeathTest, StopsOutsideTheRange) { EXPECT_DEATH(permute(5, 5, {0, 0}), "index 5 of 5"); }

}  // namespace
}  // namespace plimsoll::base

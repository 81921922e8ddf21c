#include "base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

double sum_of(const std::vector<float>& terms) {
  ExactSum sum;
  for (float term : terms) sum.add(term);
  return sum.value();
}

std::vector<float> finite_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> terms;
  while (terms.size() < count) {
    const float term = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(term)) terms.push_back(term);
  }
  return terms;
}

TEST(ExactSum, HoldsEveryPowerOfTwo) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    const auto term = static_cast<float>(std::ldexp(1.0, exponent));
    EXPECT_EQ(sum_of({term}), std::ldexp(1.0, exponent)) << exponent;
    EXPECT_EQ(sum_of({-term, -term}), -std::ldexp(1.0, exponent + 1)) << exponent;
  }
}

TEST(ExactSum, HoldsTheExtremes) {
  const float smallest = std::numeric_limits<float>::denorm_min();
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(sum_of({largest, smallest, -largest}), static_cast<double>(smallest));
  EXPECT_EQ(sum_of({-largest, -smallest, largest}), -static_cast<double>(smallest));
  EXPECT_EQ(sum_of(std::vector<float>(1000, largest)), 1000.0 * static_cast<double>(largest));
  EXPECT_EQ(sum_of({}), 0.0);
  EXPECT_EQ(sum_of({0.0f, -0.0f}), 0.0);
}

TEST(ExactSum, HoldsEveryFloatItIsGiven) {
  for (float term : finite_floats(20000, 1)) ASSERT_EQ(sum_of({term}), static_cast<double>(term)) << term;
}

TEST(ExactSum, CancelsToNothing) {
  std::vector<float> terms = finite_floats(1000, 2);
  for (std::size_t i = 0; i < 1000; ++i) terms.push_back(-terms[i]);
  std::shuffle(terms.begin(), terms.end(), std::mt19937(3));
  EXPECT_EQ(sum_of(terms), 0.0);
}

TEST(ExactSum, DoesNotDependOnOrderOrShards) {
  std::vector<float> terms = finite_floats(4096, 4);
  const double expected = sum_of(terms);
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    std::shuffle(terms.begin(), terms.end(), std::mt19937(seed));
    ExactSum left, right;
    for (std::size_t i = 0; i < terms.size(); ++i) (i < terms.size() / 3 ? left : right).add(terms[i]);
    left += right;
    EXPECT_EQ(left.value(), expected);
  }
}

TEST(ExactSum, SaysWhenATermWasNotFinite) {
  EXPECT_TRUE(std::isnan(sum_of({1.0f, std::numeric_limits<float>::infinity()})));
  EXPECT_TRUE(std::isnan(sum_of({std::nanf(""), 1.0f})));
}

}  // namespace
}  // namespace plimsoll::base

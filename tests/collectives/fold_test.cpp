// The canonical fold itself: special values, and every f16 there is.
#include "collectives/fold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "collectives/half.h"

namespace plimsoll::collectives {
namespace {

using base::DType;

TEST(Half, EveryValueByInstructionAsOneByOne) {
  std::vector<std::uint16_t> all(65536), back(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  widen_f16(all.data(), 65536, wide.data());
  narrow_f16(wide.data(), 65536, back.data());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float one = base::f32_from_f16(all[i]);
    if (std::isnan(one) && (all[i] & 0x200u) == 0) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;  // a signalling one: no arithmetic makes it
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(one)) << i;
    ASSERT_EQ(back[i], base::f16_from_f32(one)) << i;
  }
}

TEST(Half, RoundsAsOneByOne) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0xFFFFFFFFu - 70001; bits += 70001) values.push_back(std::bit_cast<float>(bits));
  std::vector<std::uint16_t> narrow(values.size());
  narrow_f16(values.data(), static_cast<std::int64_t>(values.size()), narrow.data());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(narrow[i], base::f16_from_f32(values[i])) << values[i];
}

float folded(const std::vector<float>& operands, Reduction reduction) {
  std::vector<const std::byte*> in;
  for (const float& operand : operands) in.push_back(reinterpret_cast<const std::byte*>(&operand));
  float result = 0;
  std::byte* const out[] = {reinterpret_cast<std::byte*>(&result)};
  fold({.in = in, .out = out, .count = 1, .dtype = DType::f32, .reduction = reduction, .members = static_cast<int>(operands.size())});
  return result;
}

TEST(Fold, GoesFromTheLeft) {
  EXPECT_EQ(folded({1e8f, 1.0f, -1e8f}, Reduction::sum), (1e8f + 1.0f) - 1e8f);
  EXPECT_EQ(folded({1e8f, -1e8f, 1.0f}, Reduction::sum), 1.0f);
  EXPECT_EQ(folded({1.0f, 2.0f, 4.0f}, Reduction::mean), 7.0f * (1.0f / 3.0f));
}

TEST(Fold, AMaximumKeepsNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(folded({1, nan, 3}, Reduction::max)));
  EXPECT_TRUE(std::isnan(folded({nan, infinity}, Reduction::max)));
  EXPECT_TRUE(std::isnan(folded({infinity, nan}, Reduction::max)));
  EXPECT_EQ(folded({-infinity, -3, -7}, Reduction::max), -3);
}

}  // namespace
}  // namespace plimsoll::collectives

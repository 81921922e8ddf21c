// The 16-bit conversions are checked on every 16-bit value and around every rounding boundary between two of them:
// conversion is monotonic, so what holds at the boundaries holds everywhere.
#include "base/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

constexpr std::uint16_t kSign = 0x8000;
constexpr std::uint16_t kF16Infinity = 0x7C00;
constexpr std::uint16_t kBf16Infinity = 0x7F80;

// What a half means, from its definition: sign, 5 exponent bits with bias 15, 10 fraction bits.
double meaning_of_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  const double sign = (bits & kSign) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

// The three floats that decide the rounding between neighbours `low` and `low + 1`, of the given sign: just under the
// middle, the middle and just over it. Neighbours have at least 13 bits less than a float, so all three are floats.
struct Boundary {
  float under, middle, over;
};

Boundary boundary_between(double low, double high, std::uint16_t sign) {
  const auto middle = static_cast<float>((low + high) / 2);
  Boundary result{std::nextafter(middle, 0.0f), middle, std::nextafter(middle, std::numeric_limits<float>::infinity())};
  if (sign != 0) result = {-result.under, -result.middle, -result.over};
  return result;
}

template <typename Convert>
void expect_rounding_to_nearest_even(std::uint16_t low, std::uint16_t sign, const Boundary& at, Convert convert) {
  const auto high = static_cast<std::uint16_t>(low + 1);
  const std::uint16_t even = (low & 1) == 0 ? low : high;
  ASSERT_EQ(convert(at.under), low | sign) << "under the middle above " << low;
  ASSERT_EQ(convert(at.middle), even | sign) << "in the middle above " << low;
  ASSERT_EQ(convert(at.over), high | sign) << "over the middle above " << low;
}

TEST(F16, WidensEveryValueExactly) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const double expected = meaning_of_f16(static_cast<std::uint16_t>(bits));
    const float found = f32_from_f16(static_cast<std::uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(found), expected) << bits;
      ASSERT_EQ(std::signbit(found), (bits & kSign) != 0) << bits;
    }
  }
}

TEST(F16, ReturnsEveryValueUnchanged) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    if ((bits & 0x7FFF) > kF16Infinity) continue;
    ASSERT_EQ(f16_from_f32(f32_from_f16(static_cast<std::uint16_t>(bits))), bits);
  }
}

TEST(F16, RoundsToNearestEvenEverywhere) {
  for (std::uint16_t sign : {std::uint16_t{0}, kSign}) {
    for (std::uint16_t low = 0; low < kF16Infinity; ++low) {
      // Over the largest value the next step would be 65536; from its middle, 65520, on the result is infinite.
      const double high = low + 1 == kF16Infinity ? 65536.0 : meaning_of_f16(static_cast<std::uint16_t>(low + 1));
      expect_rounding_to_nearest_even(low, sign, boundary_between(meaning_of_f16(low), high, sign), f16_from_f32);
    }
  }
}

TEST(F16, KeepsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f16_from_f32(infinity), kF16Infinity);
  EXPECT_EQ(f16_from_f32(-infinity), kF16Infinity | kSign);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::max()), kF16Infinity);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f16_from_f32(-0.0f), kSign);
  EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Bf16, ReturnsEveryValueUnchanged) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float wide = f32_from_bf16(static_cast<std::uint16_t>(bits));
    if ((bits & 0x7FFF) > kBf16Infinity) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
    } else {
      ASSERT_EQ(bf16_from_f32(wide), bits);
    }
  }
}

TEST(Bf16, RoundsToNearestEvenEverywhere) {
  for (std::uint16_t sign : {std::uint16_t{0}, kSign}) {
    for (std::uint16_t low = 0; low < kBf16Infinity; ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const double next = high == kBf16Infinity ? 0x1p128 : static_cast<double>(f32_from_bf16(high));
      expect_rounding_to_nearest_even(low, sign, boundary_between(static_cast<double>(f32_from_bf16(low)), next, sign), bf16_from_f32);
    }
  }
}

TEST(Bf16, KeepsEveryNanQuiet) {
  // The payload may sit in the half that is cut off: rounding must not turn such a NaN into infinity or zero.
  for (std::uint32_t sign : {0u, 0x80000000u}) {
    for (std::uint32_t payload : {1u, 0x7FFFu, 0x8000u, 0xFFFFu, 0x10000u, 0x400000u, 0x7FFFFFu}) {
      const float nan = std::bit_cast<float>(sign | 0x7F800000u | payload);
      const std::uint16_t found = bf16_from_f32(nan);
      EXPECT_TRUE(std::isnan(f32_from_bf16(found))) << payload;
      EXPECT_NE(found & 0x40, 0) << payload;
      EXPECT_EQ(found & kSign, sign >> 16) << payload;
    }
  }
}

TEST(DType, TableIsComplete) {
  constexpr std::array<DType, 9> kAll{DType::f32, DType::bf16, DType::f16, DType::f8e4m3, DType::f8e5m2,
                                      DType::i32, DType::i64,  DType::u16, DType::u8};
  for (DType dtype : kAll) {
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
    EXPECT_GE(size_of(dtype), 1);
    const char first = name_of(dtype).front();
    EXPECT_EQ(is_float(dtype), first == 'f' || first == 'b') << name_of(dtype);
  }
  EXPECT_EQ(size_of(DType::f32), 4);
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::f8e5m2), 1);
  EXPECT_EQ(size_of(DType::i64), 8);
  EXPECT_EQ(dtype_from_name("float32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

}  // namespace
}  // namespace plimsoll::base

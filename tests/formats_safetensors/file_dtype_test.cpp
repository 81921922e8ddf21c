// Conversions to and from f32: every 16-bit pattern, and the rounding of those that lose bits.
#include "formats/file_dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/dtype.h"

namespace plimsoll::formats {
namespace {

std::vector<float> all_patterns(FileDType dtype) {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(bits.size());
  read_f32(dtype, std::as_bytes(std::span(bits)), 0, values);
  return values;
}

TEST(FileDType, NamesAreKnownBothWays) {
  for (int i = 0; i <= static_cast<int>(FileDType::u64); ++i) {
    const auto dtype = static_cast<FileDType>(i);
    EXPECT_EQ(file_dtype_from_name(name_of(dtype)), dtype);
    EXPECT_GT(bits_of(dtype), 0);
  }
  EXPECT_EQ(file_dtype_from_name("f32"), std::nullopt);
}

TEST(FileDType, EveryHalfEqualsTheCompilersOwn) {
  const std::vector<float> values = all_patterns(FileDType::f16);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float expected = base::f32_from_f16(static_cast<std::uint16_t>(i));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  }
}

TEST(FileDType, SixteenBitValuesComeBackUnchanged) {
  for (const FileDType dtype : {FileDType::f16, FileDType::bf16}) {
    const std::vector<float> values = all_patterns(dtype);
    std::vector<std::uint16_t> back(values.size());
    write_f32(dtype, values, std::as_writable_bytes(std::span(back)));
    for (std::size_t i = 0; i < back.size(); ++i) {
      EXPECT_TRUE(back[i] == i || std::isnan(values[i])) << i;
    }
  }
}

TEST(FileDType, UnalignedPartsAreReadInPlace) {
  const std::vector<double> stored{1.5, -2.0, 1e300, 0.1};
  std::vector<std::byte> bytes(1 + stored.size() * 8);
  std::memcpy(bytes.data() + 1, stored.data(), stored.size() * 8);
  std::vector<float> out(2);
  read_f32(FileDType::f64, std::span(bytes).subspan(1), 2, out);
  EXPECT_TRUE(std::isinf(out[0]));
  EXPECT_EQ(out[1], 0.1F);
}

TEST(FileDType, RoundsToNearestEven) {
  const std::vector<float> values{1.0F + 1.0F / 256, 1.0F + 3.0F / 256, -70000.0F, 1e-9F};
  std::vector<std::uint16_t> bits(4);
  std::vector<float> back(4);
  write_f32(FileDType::bf16, values, std::as_writable_bytes(std::span(bits)));
  read_f32(FileDType::bf16, std::as_bytes(std::span(bits)), 0, back);
  EXPECT_EQ(back[0], 1.0F);
  EXPECT_EQ(back[1], 1.0F + 4.0F / 256);
  write_f32(FileDType::f16, values, std::as_writable_bytes(std::span(bits)));
  read_f32(FileDType::f16, std::as_bytes(std::span(bits)), 0, back);
  EXPECT_EQ(back[2], -INFINITY);
  EXPECT_EQ(back[3], 0.0F);
}

}  // namespace
}  // namespace plimsoll::formats

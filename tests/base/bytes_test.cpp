#include "base/bytes.h"

#include <limits>

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

constexpr std::int64_t kKi = 1024;

TEST(Bytes, PrintsThreeSignificantDigitsInBinaryUnits) {
  EXPECT_EQ(to_string(Bytes{0}), "0 B");
  EXPECT_EQ(to_string(Bytes{1}), "1 B");
  EXPECT_EQ(to_string(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_string(Bytes{1024}), "1.00 KiB");
  EXPECT_EQ(to_string(Bytes{1536}), "1.50 KiB");
  EXPECT_EQ(to_string(Bytes{10 * kKi}), "10.0 KiB");
  EXPECT_EQ(to_string(Bytes{100 * kKi}), "100 KiB");
  EXPECT_EQ(to_string(Bytes{1023 * kKi}), "1023 KiB");
  EXPECT_EQ(to_string(Bytes{8 * kKi * kKi * kKi}), "8.00 GiB");
  EXPECT_EQ(to_string(Bytes{std::numeric_limits<std::int64_t>::max()}), "8192 PiB");
}

TEST(Bytes, NeverPrintsFourDigitsByRoundingUp) {
  EXPECT_EQ(to_string(Bytes{kKi * kKi - 1}), "1.00 MiB");
  EXPECT_EQ(to_string(Bytes{kKi * kKi * kKi - 1}), "1.00 GiB");
  EXPECT_EQ(to_string(Bytes{10 * kKi - 1}), "10.0 KiB");
  EXPECT_EQ(to_string(Bytes{100 * kKi - 1}), "100 KiB");
}

TEST(Bytes, PrintsNegativeDifferences) {
  EXPECT_EQ(to_string(Bytes{-5}), "-5 B");
  EXPECT_EQ(to_string(Bytes{100} - Bytes{100 + 1536}), "-1.50 KiB");
}

TEST(Bytes, ParsesWhatUsersWrite) {
  EXPECT_EQ(parse_bytes("0"), Bytes{0});
  EXPECT_EQ(parse_bytes("4096"), Bytes{4096});
  EXPECT_EQ(parse_bytes("12B"), Bytes{12});
  EXPECT_EQ(parse_bytes("25MB"), Bytes{25'000'000});
  EXPECT_EQ(parse_bytes("50kB"), Bytes{50'000});
  EXPECT_EQ(parse_bytes("8GiB"), Bytes{8 * kKi * kKi * kKi});
  EXPECT_EQ(parse_bytes("8 GiB"), Bytes{8 * kKi * kKi * kKi});
  EXPECT_EQ(parse_bytes("1.5KiB"), Bytes{1536});
  EXPECT_EQ(parse_bytes("5e8"), Bytes{500'000'000});
  EXPECT_EQ(parse_bytes("2TB"), Bytes{2'000'000'000'000});
  EXPECT_EQ(parse_bytes("2TiB"), Bytes{std::int64_t{2} << 40});
}

TEST(Bytes, RefusesWhatIsNotAnAmount) {
  for (const char* text :
       {"", " ", "GiB", "8 gib", "8GIB", "8GiBs", "8 GiB ", "-1", "-1MB", "nan", "inf", "1e400", "9.3e18", "0x10", "1,5MB", "9000000TiB"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(Bytes, AddsAndRoundsUp) {
  Bytes total{10};
  total += Bytes{5};
  total -= Bytes{1};
  EXPECT_EQ(total, Bytes{14});
  EXPECT_EQ(Bytes{3} * 4, Bytes{12});
  EXPECT_EQ(round_up(Bytes{0}, Bytes{64}), Bytes{0});
  EXPECT_EQ(round_up(Bytes{1}, Bytes{64}), Bytes{64});
  EXPECT_EQ(round_up(Bytes{64}, Bytes{64}), Bytes{64});
  EXPECT_EQ(round_up(Bytes{65}, Bytes{64}), Bytes{128});
  EXPECT_LT(Bytes{1}, Bytes{2});
}

}  // namespace
}  // namespace plimsoll::base

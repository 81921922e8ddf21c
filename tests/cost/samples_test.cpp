// Prices between samples: exact where measured, monotone between, never absurd outside.
#include <gtest/gtest.h>

#include "cost/samples.h"

namespace plimsoll::cost {
namespace {

using cluster::DType;
using cluster::Sample;

std::vector<Sample> line() {
  return {{.op = "add", .dtype = DType::f32, .threads = 2, .extents = {1000, 1, 1}, .seconds = 1e-6},
          {.op = "add", .dtype = DType::f32, .threads = 2, .extents = {1000000, 1, 1}, .seconds = 1e-4},
          {.op = "add", .dtype = DType::f32, .threads = 1, .extents = {1000, 1, 1}, .seconds = 2e-6}};
}

double at(const std::vector<Sample>& samples, std::int64_t bytes) {
  return *seconds_between(samples, {.op = "add", .dtype = DType::f32, .threads = 2, .extents = {bytes, 1, 1}});
}

TEST(Samples, AreTheirOwnPrice) {
  EXPECT_DOUBLE_EQ(at(line(), 1000), 1e-6);
  EXPECT_NEAR(at(line(), 1000000), 1e-4, 1e-15);
}

TEST(Samples, GiveTheOutermostRateBeyondThem) {
  EXPECT_NEAR(at(line(), 10000000), 1e-3, 1e-12);
  EXPECT_DOUBLE_EQ(at(line(), 10), 1e-6);
}

TEST(Samples, RiseBetween) {
  double last = 0.0;
  for (std::int64_t bytes = 1000; bytes < 10000000; bytes = bytes * 3 / 2) {
    EXPECT_GT(at(line(), bytes), last);
    last = at(line(), bytes);
  }
}

TEST(Samples, AreOfOneOperatorAndType) {
  EXPECT_FALSE(seconds_between(line(), {.op = "mul", .threads = 2}));
  EXPECT_FALSE(seconds_between(line(), {.op = "add", .dtype = DType::bf16, .threads = 2}));
}

TEST(Samples, AreScaledFromTheNearestThreadCount) {
  EXPECT_DOUBLE_EQ(*seconds_between(line(), {.op = "add", .threads = 1, .extents = {1000, 1, 1}}), 2e-6);
  EXPECT_DOUBLE_EQ(*seconds_between(line(), {.op = "add", .threads = 4, .extents = {1000, 1, 1}}), 0.5e-6);
}

TEST(Samples, OfProductsAreWeighedByDistance) {
  std::vector<Sample> grid;
  for (std::int64_t rows : {64, 1024}) {
    for (std::int64_t columns : {64, 1024})
      grid.push_back(
          {.op = "linear", .dtype = DType::f32, .extents = {rows, columns, 256}, .seconds = 1e-9 * static_cast<double>(rows * columns)});
  }
  const auto seconds = [&](std::int64_t rows, std::int64_t columns) {
    return *seconds_between(grid, {.op = "linear", .extents = {rows, columns, 256}});
  };
  EXPECT_NEAR(seconds(64, 1024), 1e-9 * 64 * 1024, 1e-12);
  EXPECT_NEAR(seconds(256, 256), 1e-9 * 256 * 256, 1e-9);  // the same rate everywhere: the same between
}

}  // namespace
}  // namespace plimsoll::cost

#include "kernels_rows/harness.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

TEST(Rope, TurnsPairsAndTurnsThemBack) {
  for (DType dtype : kFloats) {
    for (const ops::Heads heads : {ops::Heads{4, 2, 6}, ops::Heads{3, 3, 64}, ops::Heads{8, 1, 34}}) {
      const std::int64_t width = heads.packed_width(), rows = 2 * 61, half = heads.dim / 2;
      Data x = random_data(dtype, Shape{2, 61, width}, 1), positions = random_ids(Shape{2, 61}, 100, 2);
      Data table({DType::f32, Shape{100, heads.dim}});
      for (std::int64_t position = 0; position < 100; ++position) {
        for (std::int64_t d = 0; d < half; ++d) {
          const double angle =
              static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(d) / static_cast<double>(heads.dim));
          table.set(position * heads.dim + d, std::cos(angle));
          table.set(position * heads.dim + half + d, std::sin(angle));
        }
      }
      std::vector<double> expected = doubles(x);
      const auto turn = [&](std::int64_t row, std::int64_t offset) {
        const std::int64_t angles = positions.as<std::int32_t>()[row] * heads.dim;
        for (std::int64_t d = 0; d < half; ++d) {
          double& a = expected[static_cast<std::size_t>(row * width + offset + d)];
          double& b = expected[static_cast<std::size_t>(row * width + offset + half + d)];
          const double c = table[angles + d], s = table[angles + half + d], before = a;
          a = a * c - b * s;
          b = b * c + before * s;
        }
      };
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t head = 0; head < heads.query; ++head) turn(row, heads.query_offset(head));
        for (std::int64_t head = 0; head < heads.kv; ++head) turn(row, heads.key_offset(head));
      }
      std::vector<Data> out = run_kernel(rope_kernels(), ops::Rope{.heads = heads}, {&x, &positions, &table}, {x.type});
      expect_close(out[0], expected);
      const std::vector<Data> back =
          run_kernel(rope_kernels(), ops::Rope{.heads = heads, .inverse = true}, {&out[0], &positions, &table}, {x.type});
      expect_close(back[0], doubles(x), 2.0 * epsilon(dtype));
      call_kernel(rope_kernels(), ops::Rope{.heads = heads}, {&x, &positions, &table}, {&x}, 2);
      EXPECT_TRUE(x == out[0]);
    }
  }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing

#include "kernels_rows/harness.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

TEST(Embed, SumsRowsOfItsTables) {
  for (DType dtype : kFloats) {
    for (std::int64_t tables : {1, 2, 3}) {
      for (std::int64_t width : {1, 37, 1030}) {
        std::vector<Data> operands;
        for (std::int64_t table = 0; table < tables; ++table) {
          const auto rows = static_cast<std::int32_t>(50 / (table + 1));
          operands.push_back(random_ids(Shape{3, 11}, rows, static_cast<unsigned>(table)));
          operands.push_back(random_data(dtype, Shape{rows, width}, static_cast<unsigned>(10 + table)));
        }
        std::vector<Data*> inputs;
        for (Data& operand : operands) inputs.push_back(&operand);
        const std::vector<Data> out = run_kernel(embedding_kernels(), ops::Embed{.tables = tables}, inputs, {{dtype, Shape{3, 11, width}}});
        std::vector<double> expected(static_cast<std::size_t>(33 * width));
        for (std::size_t index = 0; index < expected.size(); ++index) {
          const auto token = static_cast<std::int64_t>(index) / width, column = static_cast<std::int64_t>(index) % width;
          for (std::size_t table = 0; table < operands.size(); table += 2) {
            expected[index] += operands[table + 1][operands[table].as<std::int32_t>()[token] * width + column];
          }
        }
        expect_close(out[0], expected);
      }
    }
  }
}

TEST(EmbedGrad, AddsInTokenOrder) {
  for (DType dtype : kFloats) {
    for (DType grad_dtype : kFloats) {
      for (bool accumulate : {false, true}) {
        for (const auto& [rows, width] : {std::pair{5, 3}, std::pair{300, 129}, std::pair{2, 1100}}) {
          Data ids = random_ids(Shape{4, 50}, rows, 1), dy = random_data(dtype, Shape{4, 50, width}, 2);
          Data before = random_data(grad_dtype, Shape{rows, width}, 3);
          std::vector<float> sums(static_cast<std::size_t>(rows * width));
          if (accumulate)
            std::transform(sums.begin(), sums.end(), sums.begin(), [&, i = 0](float) mutable { return static_cast<float>(before[i++]); });
          for (std::int64_t token = 0; token < 200; ++token) {
            for (std::int64_t column = 0; column < width; ++column) {
              sums[static_cast<std::size_t>(ids.as<std::int32_t>()[token] * width + column)] +=
                  static_cast<float>(dy[token * width + column]);
            }
          }
          const ops::EmbedGrad op{.rows = rows, .dtype = grad_dtype, .accumulate = accumulate};
          std::vector<Data*> inputs{&ids, &dy};
          if (accumulate) inputs.push_back(&before);
          const std::vector<Data> out = run_kernel(embedding_kernels(), op, inputs, {before.type});
          Data expected(before.type);
          for (std::size_t index = 0; index < sums.size(); ++index) expected.set(static_cast<std::int64_t>(index), sums[index]);
          EXPECT_TRUE(out[0] == expected) << base::to_string(before.type);
          if (accumulate) {
            call_kernel(embedding_kernels(), op, inputs, {&before}, 2);
            EXPECT_TRUE(before == expected);
          }
        }
      }
    }
  }
}

TEST(EmbedGrad, ClearsLargeTables) {
  constexpr std::int64_t kRows = 30011, kWidth = 65;  // past the size that is cleared around the caches
  Data ids = random_ids(Shape{7}, kRows, 1), dy = random_data(DType::f32, Shape{7, kWidth}, 2);
  const std::vector<Data> out =
      run_kernel(embedding_kernels(), ops::EmbedGrad{.rows = kRows}, {&ids, &dy}, {{DType::f32, Shape{kRows, kWidth}}});
  std::int64_t nonzero = 0;
  double sum = 0.0, expected = 0.0;
  for (std::int64_t index = 0; index < out[0].size(); ++index) nonzero += out[0][index] != 0.0, sum += out[0][index];
  for (std::int64_t index = 0; index < dy.size(); ++index) expected += dy[index];
  EXPECT_EQ(nonzero, 7 * kWidth);
  EXPECT_NEAR(sum, expected, 1e-4);
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing

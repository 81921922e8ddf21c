#include <tuple>

#include "kernels_rows/dropout_reference.h"
#include "kernels_rows/harness.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

using Values = std::vector<double>;

struct RowStatsReference {
  double mean = 0.0;
  double inverse = 0.0;
};

RowStatsReference stats_reference(const double* x, std::int64_t width, bool layer, double eps) {
  RowStatsReference stats;
  if (layer) {
    for (std::int64_t c = 0; c < width; ++c) stats.mean += x[c] / static_cast<double>(width);
  }
  double variance = 0.0;
  for (std::int64_t c = 0; c < width; ++c) variance += (x[c] - stats.mean) * (x[c] - stats.mean) / static_cast<double>(width);
  stats.inverse = 1.0 / std::sqrt(variance + eps);
  return stats;
}

struct Case {
  DType dtype;
  ops::NormKind kind;
  Shape shape;
  bool bias;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (DType dtype : kFloats) {
    for (ops::NormKind kind : {ops::NormKind::layer, ops::NormKind::rms}) {
      for (const Shape& shape : {Shape{2, 3, 1}, Shape{1, 5, 7}, Shape{3, 67, 129}, Shape{2, 150, 64}}) {
        all.push_back({dtype, kind, shape, kind == ops::NormKind::layer});
      }
    }
  }
  return all;
}

void check_norm_of(const Case& c, const Values& x, const Data& weight, const Data& bias, const Data& y, const Data& stats, double eps) {
  const std::int64_t width = c.shape[-1];
  Values expected(x.size());
  Values expected_stats;
  for (std::int64_t row = 0; row < c.shape.rows(); ++row) {
    const RowStatsReference of_row = stats_reference(&x[static_cast<std::size_t>(row * width)], width, c.kind == ops::NormKind::layer, eps);
    for (std::int64_t column = 0; column < width; ++column) {
      const auto index = static_cast<std::size_t>(row * width + column);
      expected[index] = (x[index] - of_row.mean) * of_row.inverse * weight[column] + (c.bias ? bias[column] : 0.0);
    }
    expected_stats.insert(expected_stats.end(), {of_row.mean, of_row.inverse});
  }
  expect_close(y, expected, 1e-5);
  expect_close(stats, expected_stats, 1e-5);
}

TEST(Norm, MatchesDoubles) {
  for (const Case& c : cases()) {
    const Shape row{c.shape[-1]};
    Data x = random_data(c.dtype, c.shape, 1, 1.5, 0.7);
    Data weight = random_data(c.dtype, row, 2), bias = random_data(DType::f32, row, 3);
    std::vector<Data*> inputs{&x, &weight};
    if (c.bias) inputs.push_back(&bias);
    const ops::Norm op{.kind = c.kind, .eps = 1e-5, .bias = c.bias};
    const std::vector<Data> out = run_kernel(norm_kernels(), op, inputs, {x.type, {DType::f32, Shape{c.shape.rows(), 2}}});
    check_norm_of(c, doubles(x), weight, bias, out[0], out[1], op.eps);
  }
}

TEST(Norm, AddsADroppedResidualFirst) {
  for (const Case& c : cases()) {
    for (double rate : {0.0, 0.3}) {
      const Shape row{c.shape[-1]};
      Data x = random_data(c.dtype, c.shape, 1), r = random_data(c.dtype, c.shape, 4);
      Data weight = random_data(c.dtype, row, 2), bias = random_data(c.dtype, row, 3);
      Data samples = random_ids(Shape{c.shape[0]}, 1000, 5);
      Data scalars = scalars_data(scalars_at(11, 3));
      std::vector<Data*> inputs{&x, &r, &weight};
      if (c.bias) inputs.push_back(&bias);
      if (rate > 0.0) inputs.insert(inputs.end(), {&samples, &scalars});
      const ops::Norm op{.kind = c.kind, .bias = c.bias, .residual = true, .rate = rate, .site = 9};
      const std::vector<Data> out = run_kernel(norm_kernels(), op, inputs, {x.type, x.type, {DType::f32, Shape{c.shape.rows(), 2}}});
      Values sum = doubles(x);
      const Values kept =
          rate > 0.0 ? dropout_reference(rate, 9, scalars_at(11, 3), c.shape, samples.as<std::int32_t>()) : Values(sum.size(), 1.0);
      for (std::size_t index = 0; index < sum.size(); ++index) sum[index] += kept[index] * r[static_cast<std::int64_t>(index)];
      expect_close(out[0], sum);
      // What is normalised is the sum as it was stored.
      check_norm_of(c, doubles(out[0]), weight, bias, out[1], out[2], op.eps);
    }
  }
}

TEST(NormGrad, MatchesDoubles) {
  for (const Case& c : cases()) {
    if (c.shape[-1] == 1) continue;  // dx is 0, from terms as large as 1 / sqrt(eps)
    for (bool accumulate : {false, true}) {
      const std::int64_t rows = c.shape.rows(), width = c.shape[-1];
      const DType grad_dtype = accumulate ? DType::f32 : c.dtype;
      const Shape row{width};
      Data x = random_data(c.dtype, c.shape, 1, 1.5, 0.7), dy = random_data(c.dtype, c.shape, 2), dsum = random_data(c.dtype, c.shape, 3);
      Data weight = random_data(c.dtype, row, 4), before_w = random_data(grad_dtype, row, 5), before_b = random_data(grad_dtype, row, 6);
      Data stats({DType::f32, Shape{rows, 2}});
      Values dx(static_cast<std::size_t>(c.shape.elements())), dw(static_cast<std::size_t>(width)), db(dw);
      if (accumulate) dw = doubles(before_w), db = doubles(before_b);
      const Values xs = doubles(x);
      for (std::int64_t r = 0; r < rows; ++r) {
        const RowStatsReference s = stats_reference(&xs[static_cast<std::size_t>(r * width)], width, c.kind == ops::NormKind::layer, 1e-5);
        stats.set(2 * r, s.mean), stats.set(2 * r + 1, s.inverse);
        double mean_g = 0.0, mean_gh = 0.0;
        for (std::int64_t k = 0; k < width; ++k) {
          const double h = (x[r * width + k] - s.mean) * s.inverse, g = dy[r * width + k] * weight[k];
          mean_g += g / static_cast<double>(width), mean_gh += g * h / static_cast<double>(width);
          dw[static_cast<std::size_t>(k)] += dy[r * width + k] * h, db[static_cast<std::size_t>(k)] += dy[r * width + k];
        }
        if (c.kind == ops::NormKind::rms) mean_g = 0.0;
        for (std::int64_t k = 0; k < width; ++k) {
          const double h = (x[r * width + k] - s.mean) * s.inverse, g = dy[r * width + k] * weight[k];
          dx[static_cast<std::size_t>(r * width + k)] = (g - mean_g - h * mean_gh) * s.inverse + (accumulate ? dsum[r * width + k] : 0.0);
        }
      }
      std::vector<Data*> inputs{&dy, &x, &weight, &stats};
      if (accumulate) inputs.push_back(&dsum), inputs.push_back(&before_w);
      if (accumulate && c.bias) inputs.push_back(&before_b);
      std::vector<TensorType> types{x.type, {grad_dtype, row}};
      if (c.bias) types.push_back(types[1]);
      const ops::NormGrad op{.kind = c.kind, .bias = c.bias, .has_dsum = accumulate, .dtype = grad_dtype, .accumulate = accumulate};
      const std::vector<Data> out = run_kernel(norm_kernels(), op, inputs, types);
      expect_close(out[0], dx, 1e-5);
      expect_close(out[1], dw, 1e-5);
      if (c.bias) expect_close(out[2], db, 1e-5);
    }
  }
}

TEST(NormGrad, WritesInPlace) {
  const Shape shape{40, 100}, row{100};
  Data x = random_data(DType::f32, shape, 1), dy = random_data(DType::f32, shape, 2), weight = random_data(DType::f32, row, 3);
  Data stats = random_data(DType::f32, Shape{40, 2}, 4), dw({DType::f32, row});
  const ops::NormGrad op{.kind = ops::NormKind::rms};
  const std::vector<Data> apart = run_kernel(norm_kernels(), op, {&dy, &x, &weight, &stats}, {x.type, {DType::f32, row}});
  call_kernel(norm_kernels(), op, {&dy, &x, &weight, &stats}, {&dy, &dw}, 2);
  EXPECT_TRUE(dy == apart[0]);
  EXPECT_TRUE(dw == apart[1]);
}

struct HeadPlace {
  std::int64_t offset;
  std::int64_t index;
  bool key;
};

std::vector<HeadPlace> normalised_heads(const ops::Heads& heads) {
  std::vector<HeadPlace> all;
  for (std::int64_t h = 0; h < heads.query; ++h) all.push_back({heads.query_offset(h), h, false});
  for (std::int64_t h = 0; h < heads.kv; ++h) all.push_back({heads.key_offset(h), heads.query + h, true});
  return all;
}

TEST(QkNorm, MatchesDoubles) {
  for (DType dtype : kFloats) {
    for (const ops::Heads heads : {ops::Heads{4, 2, 16}, ops::Heads{6, 2, 10}, ops::Heads{1, 1, 64}}) {
      const std::int64_t width = heads.packed_width(), rows = 90, count = heads.query + heads.kv;
      const Shape shape{2, rows / 2, width}, head{heads.dim};
      Data packed = random_data(dtype, shape, 1), wq = random_data(dtype, head, 2), wk = random_data(dtype, head, 3);
      const std::vector<Data> out =
          run_kernel(norm_kernels(), ops::QkNorm{.heads = heads}, {&packed, &wq, &wk}, {packed.type, {DType::f32, Shape{rows, count}}});
      Values expected = doubles(packed), stats(static_cast<std::size_t>(rows * count));
      const Values x = expected;
      for (std::int64_t row = 0; row < rows; ++row) {
        for (const HeadPlace& place : normalised_heads(heads)) {
          const std::int64_t first = row * width + place.offset;
          const RowStatsReference s = stats_reference(&x[static_cast<std::size_t>(first)], heads.dim, false, 1e-6);
          stats[static_cast<std::size_t>(row * count + place.index)] = s.inverse;
          for (std::int64_t k = 0; k < heads.dim; ++k) {
            expected[static_cast<std::size_t>(first + k)] *= s.inverse * (place.key ? wk : wq)[k];
          }
        }
      }
      expect_close(out[0], expected, 1e-5);
      expect_close(out[1], stats, 1e-5);
    }
  }
}

TEST(QkNormGrad, MatchesDoubles) {
  for (DType dtype : kFloats) {
    for (bool accumulate : {false, true}) {
      const ops::Heads heads{6, 2, 10};
      const std::int64_t width = heads.packed_width(), rows = 90, count = heads.query + heads.kv;
      const Shape shape{rows, width}, head{heads.dim};
      Data dy = random_data(dtype, shape, 4), x = random_data(dtype, shape, 1), stats({DType::f32, Shape{rows, count}});
      Data weights[2]{random_data(dtype, head, 2), random_data(dtype, head, 3)};
      Data before[2]{random_data(DType::f32, head, 5), random_data(DType::f32, head, 6)};
      Values dx = doubles(dy), dw[2]{Values(10), Values(10)};
      if (accumulate) dw[0] = doubles(before[0]), dw[1] = doubles(before[1]);
      const Values xs = doubles(x);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (const HeadPlace& place : normalised_heads(heads)) {
          const auto first = static_cast<std::size_t>(row * width + place.offset);
          const double inverse = stats_reference(&xs[first], heads.dim, false, 1e-6).inverse;
          stats.set(row * count + place.index, inverse);
          double mean_gh = 0.0;
          for (std::size_t k = 0; k < 10; ++k) {
            const double slope = dx[first + k], h = xs[first + k] * inverse;
            mean_gh += slope * weights[place.key][static_cast<std::int64_t>(k)] * h / 10.0;
            dw[place.key][k] += slope * h;
          }
          for (std::size_t k = 0; k < 10; ++k) {
            dx[first + k] =
                (dx[first + k] * weights[place.key][static_cast<std::int64_t>(k)] - xs[first + k] * inverse * mean_gh) * inverse;
          }
        }
      }
      std::vector<Data*> inputs{&dy, &x, &weights[0], &weights[1], &stats};
      if (accumulate) inputs.insert(inputs.end(), {&before[0], &before[1]});
      const TensorType weight_type{DType::f32, head};
      const std::vector<Data> out = run_kernel(norm_kernels(), ops::QkNormGrad{.heads = heads, .accumulate = accumulate}, inputs,
                                               {dy.type, weight_type, weight_type});
      expect_close(out[0], dx, 1e-5);
      expect_close(out[1], dw[0], 1e-5);
      expect_close(out[2], dw[1], 1e-5);
    }
  }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing

// Normalisation of one f32 row and its gradient, for norm.cpp (whole rows) and qk_norm.cpp (heads). Each is a few
// passes over a row that stays in the first-level cache.
#pragma once

#include <cstdint>

namespace plimsoll::kernels::cpu {

struct RowStats {
  float mean = 0.0f;  // 0 for rms
  float inverse_deviation = 0.0f;
};

RowStats layer_stats(const float* x, std::int64_t width, double eps);
RowStats rms_stats(const float* x, std::int64_t width, double eps);

// y = (x - mean) / deviation * weight + bias; no bias: null. y may be x.
void normalise_row(const float* x, RowStats stats, const float* weight, const float* bias, float* y, std::int64_t width);

struct RowGrad {
  const float* dy;
  const float* x;
  const float* weight;
  const float* dsum;  // null: none
  RowStats stats;
  bool centred;    // layer: the mean is part of the function
  float* dx;       // may be dy, x or dsum
  float* dweight;  // added to
  float* dbias;    // added to; null: none
};

// With h = (x - mean) / deviation and g = dy weight: dx = (g - [mean g] - h mean(g h)) / deviation + dsum,
// dweight += dy h, dbias += dy.
void normalise_row_grad(const RowGrad& row, std::int64_t width);

// total = (present or 0) + the `parts` partial sums of `width` elements, in order. total may be present.
void sum_parts(const float* partials, std::int64_t parts, std::int64_t stride, const float* present, float* total, std::int64_t width);

}  // namespace plimsoll::kernels::cpu

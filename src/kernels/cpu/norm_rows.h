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

// The adjoint of that, for what arrived at dx (a) and at dweight (p), of which either may be null.
struct RowSecond {
  const float* dy;
  const float* x;
  const float* weight;
  const float* arrived;         // a
  const float* arrived_weight;  // p
  RowStats stats;
  bool centred;
  float* ddy;
  float* dx;
  float* dweight;  // added to
};

// J u = (u - [mean u] - h mean(u h)) / deviation is the derivative of h along u. ddy = weight (J a) + p h, dweight += dy (J a),
// dx = J (p dy) - (h <a, J g> + (J a) <g, h> + (J g) <a, h>) / (width deviation).
void normalise_row_second(const RowSecond& row, std::int64_t width);

// total = (present or 0) + the `parts` partial sums of `width` elements, in order. total may be present.
void sum_parts(const float* partials, std::int64_t parts, std::int64_t stride, const float* present, float* total, std::int64_t width);

}  // namespace plimsoll::kernels::cpu

// See norm_rows.h.
#include "kernels/cpu/norm_rows.h"

#include <cmath>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm_rows.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t kLanes = hn::MaxLanes(Tag());

// Sums term(index, values) over the row. Four sums side by side hide the latency of additions.
template <typename Term>
HWY_INLINE float sum_row(const float* x, std::int64_t width, const Term& term) {
  const Tag d;
  Vector sum0 = hn::Zero(d);
  Vector sum1 = sum0;
  Vector sum2 = sum0;
  Vector sum3 = sum0;
  std::int64_t index = 0;
  for (; index + 4 * kLanes <= width; index += 4 * kLanes) {
    sum0 = term(sum0, load(d, x + index));
    sum1 = term(sum1, load(d, x + index + kLanes));
    sum2 = term(sum2, load(d, x + index + 2 * kLanes));
    sum3 = term(sum3, load(d, x + index + 3 * kLanes));
  }
  for (; index + kLanes <= width; index += kLanes) sum0 = term(sum0, load(d, x + index));
  const float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  // The terms of the padding lanes are the caller's to leave out, so the tail is summed apart.
  const auto rest = static_cast<std::size_t>(width - index);
  if (rest == 0) return total;
  const Vector tail = hn::IfThenElseZero(hn::FirstN(d, rest), term(hn::Zero(d), load_n(d, x + index, rest)));
  return total + hn::GetLane(hn::SumOfLanes(d, tail));
}

struct AddTerm {
  HWY_INLINE Vector operator()(Vector sum, Vector x) const { return hn::Add(sum, x); }
};

struct AddSquare {
  float mean;
  HWY_INLINE Vector operator()(Vector sum, Vector x) const {
    const Vector centred = hn::Sub(x, hn::Set(Tag(), mean));
    return hn::MulAdd(centred, centred, sum);
  }
};

HWY_INLINE RowStats stats_around(float mean, const float* x, std::int64_t width, double eps) {
  const double variance = static_cast<double>(sum_row(x, width, AddSquare{mean})) / static_cast<double>(width);
  return {mean, static_cast<float>(1.0 / std::sqrt(variance + eps))};
}

void layer_row(const float* x, std::int64_t width, double eps, RowStats& stats) {
  stats = stats_around(sum_row(x, width, AddTerm{}) / static_cast<float>(width), x, width, eps);
}

void rms_row(const float* x, std::int64_t width, double eps, RowStats& stats) { stats = stats_around(0.0f, x, width, eps); }

void normalise(const float* x, RowStats stats, const float* weight, const float* bias, float* y, std::int64_t width) {
  const Tag d;
  const Vector mean = hn::Set(d, stats.mean);
  const Vector inverse = hn::Set(d, stats.inverse_deviation);
  std::int64_t index = 0;
  for (; index + kLanes <= width; index += kLanes) {
    const Vector h = hn::Mul(hn::Sub(load(d, x + index), mean), inverse);
    const Vector w = load(d, weight + index);
    store(d, bias == nullptr ? hn::Mul(h, w) : hn::MulAdd(h, w, load(d, bias + index)), y + index);
  }
  const auto rest = static_cast<std::size_t>(width - index);
  if (rest == 0) return;
  const Vector h = hn::Mul(hn::Sub(load_n(d, x + index, rest), mean), inverse);
  const Vector w = load_n(d, weight + index, rest);
  store_n(d, bias == nullptr ? hn::Mul(h, w) : hn::MulAdd(h, w, load_n(d, bias + index, rest)), y + index, rest);
}

struct GradSums {
  Vector g;
  Vector gh;
};

HWY_INLINE Vector add_grads(const RowGrad& row, Vector dy, Vector x, Vector weight, GradSums& sums) {
  const Tag d;
  const Vector h = hn::Mul(hn::Sub(x, hn::Set(d, row.stats.mean)), hn::Set(d, row.stats.inverse_deviation));
  const Vector g = hn::Mul(dy, weight);
  sums.g = hn::Add(sums.g, g);
  sums.gh = hn::MulAdd(g, h, sums.gh);
  return h;
}

// First pass: the two means, and the gradients of weight and bias.
HWY_INLINE GradSums sum_grads(const RowGrad& row, std::int64_t width) {
  const Tag d;
  GradSums even{hn::Zero(d), hn::Zero(d)};
  GradSums odd = even;
  const auto step = [&](std::int64_t index, GradSums& sums) HWY_ATTR {
    const Vector dy = load(d, row.dy + index);
    const Vector h = add_grads(row, dy, load(d, row.x + index), load(d, row.weight + index), sums);
    store(d, hn::MulAdd(dy, h, load(d, row.dweight + index)), row.dweight + index);
    if (row.dbias != nullptr) store(d, hn::Add(load(d, row.dbias + index), dy), row.dbias + index);
  };
  std::int64_t index = 0;
  for (; index + 2 * kLanes <= width; index += 2 * kLanes) {
    step(index, even);
    step(index + kLanes, odd);
  }
  if (index + kLanes <= width) {
    step(index, even);
    index += kLanes;
  }
  const auto rest = static_cast<std::size_t>(width - index);
  if (rest != 0) {
    // dy is 0 in the padding lanes, so they add nothing.
    const Vector dy = load_n(d, row.dy + index, rest);
    const Vector h = add_grads(row, dy, load_n(d, row.x + index, rest), load_n(d, row.weight + index, rest), odd);
    store_n(d, hn::MulAdd(dy, h, load_n(d, row.dweight + index, rest)), row.dweight + index, rest);
    if (row.dbias != nullptr) store_n(d, hn::Add(load_n(d, row.dbias + index, rest), dy), row.dbias + index, rest);
  }
  return {hn::Add(even.g, odd.g), hn::Add(even.gh, odd.gh)};
}

void normalise_grad(const RowGrad& row, std::int64_t width) {
  const Tag d;
  const GradSums sums = sum_grads(row, width);
  const float share = row.stats.inverse_deviation / static_cast<float>(width);
  const Vector inverse = hn::Set(d, row.stats.inverse_deviation);
  const Vector mean = hn::Set(d, row.stats.mean);
  // dx = dy weight inverse - (shift + (x - mean) tilt) + dsum, the constants of the row gathered.
  const Vector shift = hn::Set(d, row.centred ? hn::GetLane(hn::SumOfLanes(d, sums.g)) * share : 0.0f);
  const Vector tilt = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sums.gh)) * share * row.stats.inverse_deviation);
  const auto dx_of = [&](Vector dy, Vector x, Vector weight) HWY_ATTR {
    const Vector taken = hn::MulAdd(hn::Sub(x, mean), tilt, shift);
    return hn::MulSub(hn::Mul(dy, weight), inverse, taken);
  };
  std::int64_t index = 0;
  for (; index + kLanes <= width; index += kLanes) {
    Vector dx = dx_of(load(d, row.dy + index), load(d, row.x + index), load(d, row.weight + index));
    if (row.dsum != nullptr) dx = hn::Add(dx, load(d, row.dsum + index));
    store(d, dx, row.dx + index);
  }
  const auto rest = static_cast<std::size_t>(width - index);
  if (rest == 0) return;
  Vector dx = dx_of(load_n(d, row.dy + index, rest), load_n(d, row.x + index, rest), load_n(d, row.weight + index, rest));
  if (row.dsum != nullptr) dx = hn::Add(dx, load_n(d, row.dsum + index, rest));
  store_n(d, dx, row.dx + index, rest);
}

// n of the vector's lanes, the others 0; all 0 where there is nothing.
HWY_INLINE Vector load_some(const float* from, std::int64_t index, std::int64_t n) {
  const Tag d;
  if (from == nullptr) return hn::Zero(d);
  return n == kLanes ? load(d, from + index) : load_n(d, from + index, static_cast<std::size_t>(n));
}

HWY_INLINE void store_some(Vector value, float* to, std::int64_t index, std::int64_t n) {
  const Tag d;
  if (n == kLanes) return store(d, value, to + index);
  store_n(d, value, to + index, static_cast<std::size_t>(n));
}

// A vector along which the derivative is asked for: J u needs its mean and its mean with h.
struct Along {
  Vector sum;
  Vector sum_h;

  HWY_INLINE void add(Vector u, Vector h) {
    sum = hn::Add(sum, u);
    sum_h = hn::MulAdd(u, h, sum_h);
  }
  // Every lane becomes the mean.
  HWY_INLINE void finish(bool centred, std::int64_t width) {
    const Tag d;
    const Vector share = hn::Set(d, 1.0f / static_cast<float>(width));
    sum = centred ? hn::Mul(hn::SumOfLanes(d, sum), share) : hn::Zero(d);
    sum_h = hn::Mul(hn::SumOfLanes(d, sum_h), share);
  }
  // J u times the deviation.
  HWY_INLINE Vector derivative(Vector u, Vector h) const { return hn::NegMulAdd(h, sum_h, hn::Sub(u, sum)); }
};

void normalise_second(const RowSecond& row, std::int64_t width) {
  const Tag d;
  const Vector mean = hn::Set(d, row.stats.mean);
  const Vector inverse = hn::Set(d, row.stats.inverse_deviation);
  const auto at = [&](std::int64_t index, auto&& use) HWY_ATTR {
    const std::int64_t n = width - index < kLanes ? width - index : kLanes;
    const Vector h = hn::Mul(hn::Sub(load_some(row.x, index, n), mean), inverse);
    use(n, h, load_some(row.dy, index, n), load_some(row.weight, index, n), load_some(row.arrived, index, n),
        load_some(row.arrived_weight, index, n));
  };
  Along a{hn::Zero(d), hn::Zero(d)};
  Along g = a;
  Along p = a;
  for (std::int64_t index = 0; index < width; index += kLanes) {
    at(index, [&](std::int64_t, Vector h, Vector dy, Vector weight, Vector arrived, Vector arrived_weight) HWY_ATTR {
      a.add(arrived, h);
      g.add(hn::Mul(dy, weight), h);
      p.add(hn::Mul(dy, arrived_weight), h);
    });
  }
  a.finish(row.centred, width);
  g.finish(row.centred, width);
  p.finish(row.centred, width);
  // <a, J g> by the vectors themselves: as a difference of sums it would cancel.
  Vector both = hn::Zero(d);
  for (std::int64_t index = 0; index < width; index += kLanes) {
    at(index, [&](std::int64_t, Vector h, Vector dy, Vector weight, Vector arrived, Vector)
                  HWY_ATTR { both = hn::MulAdd(arrived, g.derivative(hn::Mul(dy, weight), h), both); });
  }
  both = hn::Mul(hn::SumOfLanes(d, both), hn::Set(d, 1.0f / static_cast<float>(width)));
  for (std::int64_t index = 0; index < width; index += kLanes) {
    at(index, [&](std::int64_t n, Vector h, Vector dy, Vector weight, Vector arrived, Vector arrived_weight) HWY_ATTR {
      const Vector along_a = a.derivative(arrived, h);
      const Vector along_g = g.derivative(hn::Mul(dy, weight), h);
      const Vector along_a_scaled = hn::Mul(along_a, inverse);
      store_some(hn::MulAdd(weight, along_a_scaled, hn::Mul(arrived_weight, h)), row.ddy, index, n);
      store_some(hn::MulAdd(dy, along_a_scaled, load_some(row.dweight, index, n)), row.dweight, index, n);
      const Vector bent = hn::MulAdd(h, both, hn::MulAdd(along_a, g.sum_h, hn::Mul(along_g, a.sum_h)));
      const Vector dx = hn::NegMulAdd(bent, inverse, p.derivative(hn::Mul(dy, arrived_weight), h));
      store_some(hn::Mul(dx, inverse), row.dx, index, n);
    });
  }
}

void sum_columns(const float* partials, std::int64_t parts, std::int64_t stride, const float* present, float* total, std::int64_t width) {
  const Tag d;
  std::int64_t index = 0;
  for (; index + kLanes <= width; index += kLanes) {
    Vector sum = hn::Zero(d);
    for (std::int64_t part = 0; part < parts; ++part) sum = hn::Add(sum, load(d, partials + part * stride + index));
    store(d, present == nullptr ? sum : hn::Add(load(d, present + index), sum), total + index);
  }
  for (; index < width; ++index) {
    float sum = 0.0f;
    for (std::int64_t part = 0; part < parts; ++part) sum += partials[part * stride + index];
    total[index] = present == nullptr ? sum : present[index] + sum;
  }
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(layer_row);
HWY_EXPORT(rms_row);
HWY_EXPORT(normalise);
HWY_EXPORT(normalise_grad);
HWY_EXPORT(normalise_second);
HWY_EXPORT(sum_columns);

RowStats layer_stats(const float* x, std::int64_t width, double eps) {
  RowStats stats;
  HWY_DYNAMIC_DISPATCH(layer_row)(x, width, eps, stats);
  return stats;
}

RowStats rms_stats(const float* x, std::int64_t width, double eps) {
  RowStats stats;
  HWY_DYNAMIC_DISPATCH(rms_row)(x, width, eps, stats);
  return stats;
}

void normalise_row(const float* x, RowStats stats, const float* weight, const float* bias, float* y, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(normalise)(x, stats, weight, bias, y, width);
}

void normalise_row_grad(const RowGrad& row, std::int64_t width) { HWY_DYNAMIC_DISPATCH(normalise_grad)(row, width); }

void normalise_row_second(const RowSecond& row, std::int64_t width) { HWY_DYNAMIC_DISPATCH(normalise_second)(row, width); }

void sum_parts(const float* partials, std::int64_t parts, std::int64_t stride, const float* present, float* total, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(sum_columns)(partials, parts, stride, present, total, width);
}

}  // namespace plimsoll::kernels::cpu
#endif

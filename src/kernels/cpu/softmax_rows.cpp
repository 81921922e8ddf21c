#include "kernels/cpu/softmax_rows.h"

#include <cmath>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax_rows.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t kLanes = hn::MaxLanes(Tag());
// Partial sums are moved to double this often, so that 100,000 small terms are not lost in one large f32.
constexpr std::int64_t kStretch = 64 * kLanes;

// In every lane.
Vector highest_of(const float* x, std::int64_t width) {
  const Tag d;
  Vector highest = hn::Set(d, -INFINITY);
  std::int64_t index = 0;
  for (; index + kLanes <= width; index += kLanes) highest = hn::Max(highest, load(d, x + index));
  if (index < width) highest = hn::Max(highest, load_n(d, x + index, static_cast<std::size_t>(width - index), -INFINITY));
  return hn::MaxOfLanes(d, highest);
}

float row_log_sum_exp(const float* x, std::int64_t width) {
  const Tag d;
  std::int64_t index = 0;
  const Vector top = highest_of(x, width);
  const float top_value = hn::GetLane(top);
  if (!std::isfinite(top_value)) return top_value;

  double total = 0.0;
  for (std::int64_t begin = 0; begin < width; begin += kStretch) {
    const std::int64_t end = begin + kStretch < width ? begin + kStretch : width;
    Vector sum = hn::Zero(d);
    for (index = begin; index + kLanes <= end; index += kLanes) sum = hn::Add(sum, exp(d, hn::Sub(load(d, x + index), top)));
    if (index < end) sum = hn::Add(sum, exp(d, hn::Sub(load_n(d, x + index, static_cast<std::size_t>(end - index), -INFINITY), top)));
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return top_value + static_cast<float>(std::log(total));
}

void row_softmax_gradient(const float* x, float lse, float scale, float* y, std::int64_t width) {
  const Tag d;
  const Vector shift = hn::Set(d, lse);
  const Vector factor = hn::Set(d, scale);
  std::int64_t index = 0;
  for (; index + kLanes <= width; index += kLanes) store(d, hn::Mul(exp(d, hn::Sub(load(d, x + index), shift)), factor), y + index);
  if (index == width) return;
  const auto rest = static_cast<std::size_t>(width - index);
  store_n(d, hn::Mul(exp(d, hn::Sub(load_n(d, x + index, rest), shift)), factor), y + index, rest);
}

float row_softmax_second(const float* arrived, const float* x, float lse, float scale, float* y, std::int64_t width) {
  const Tag d;
  const Vector shift = hn::Set(d, lse);
  double total = 0.0;
  for (std::int64_t begin = 0; begin < width; begin += kStretch) {
    const std::int64_t end = begin + kStretch < width ? begin + kStretch : width;
    Vector sum = hn::Zero(d);
    std::int64_t index = begin;
    for (; index + kLanes <= end; index += kLanes) {
      const Vector p = exp(d, hn::Sub(load(d, x + index), shift));
      store(d, p, y + index);
      sum = hn::MulAdd(p, load(d, arrived + index), sum);
    }
    if (index < end) {
      const auto rest = static_cast<std::size_t>(end - index);
      const Vector p = exp(d, hn::Sub(load_n(d, x + index, rest, -INFINITY), shift));
      store_n(d, p, y + index, rest);
      sum = hn::MulAdd(p, load_n(d, arrived + index, rest), sum);
    }
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  const auto mean = static_cast<float>(total);
  for (std::int64_t index = 0; index < width; ++index) y[index] *= (arrived[index] - mean) * scale;
  return mean;
}

// x becomes exp(x - highest), then that times scale / sum. Where a logit is infinite or NaN, so is all that comes out.
float row_loss_with_gradient(float* x, float scale, std::int64_t target, std::int64_t width) {
  const Tag d;
  const float at_target = x[target];
  const Vector top = highest_of(x, width);
  double total = 0.0;
  for (std::int64_t begin = 0; begin < width; begin += kStretch) {
    const std::int64_t end = begin + kStretch < width ? begin + kStretch : width;
    Vector sum = hn::Zero(d);
    std::int64_t index = begin;
    for (; index + kLanes <= end; index += kLanes) {
      const Vector power = exp(d, hn::Sub(load(d, x + index), top));
      store(d, power, x + index);
      sum = hn::Add(sum, power);
    }
    if (index < end) {
      const auto rest = static_cast<std::size_t>(end - index);
      const Vector power = exp(d, hn::Sub(load_n(d, x + index, rest, -INFINITY), top));
      store_n(d, power, x + index, rest);
      sum = hn::Add(sum, power);
    }
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  const Vector factor = hn::Set(d, static_cast<float>(static_cast<double>(scale) / total));
  std::int64_t index = 0;
  for (; index + kLanes <= width; index += kLanes) store(d, hn::Mul(load(d, x + index), factor), x + index);
  for (; index < width; ++index) x[index] *= hn::GetLane(factor);
  x[target] -= scale;
  return hn::GetLane(top) + static_cast<float>(std::log(total)) - at_target;
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(row_log_sum_exp);
HWY_EXPORT(row_softmax_gradient);
HWY_EXPORT(row_loss_with_gradient);
HWY_EXPORT(row_softmax_second);

float log_sum_exp(const float* x, std::int64_t width) { return HWY_DYNAMIC_DISPATCH(row_log_sum_exp)(x, width); }

void softmax_gradient(const float* x, float lse, float scale, std::int64_t target, float* y, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(row_softmax_gradient)(x, lse, scale, y, width);
  if (target < width) y[target] -= scale;
}

float softmax_second(const float* arrived, const float* x, float lse, float scale, float* y, std::int64_t width) {
  return HWY_DYNAMIC_DISPATCH(row_softmax_second)(arrived, x, lse, scale, y, width);
}

float loss_with_gradient(float* x, float scale, std::int64_t target, std::int64_t width) {
  return HWY_DYNAMIC_DISPATCH(row_loss_with_gradient)(x, scale, target, width);
}

}  // namespace plimsoll::kernels::cpu
#endif

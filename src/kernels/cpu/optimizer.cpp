// AdamW, Adam and SGD updates, fused: each operand passes through memory once (28 bytes a parameter for AdamW in f32),
// which is all that limits them.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

#ifndef PLIMSOLL_KERNELS_CPU_OPTIMIZER_ONCE
#define PLIMSOLL_KERNELS_CPU_OPTIMIZER_ONCE
namespace plimsoll::kernels::cpu {

// What ops::AdamUpdate's rule becomes with the constants of a step gathered, in double, then rounded:
//   weight = weight keep - rate m / (sqrt(v) spread + eps)
struct AdamConstants {
  float multiplier;     // of the gradient
  float coupled_decay;  // added to the gradient as a share of the weight
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float keep;    // 1 - lr * weight_decay if decoupled
  float rate;    // lr / (1 - beta1^t)
  float spread;  // 1 / sqrt(1 - beta2^t)
  float eps;
};

struct AdamSpan {
  const float* gradient;
  float* weight;
  float* m;
  float* v;
};

struct SgdConstants {
  float multiplier;
  float decay;
  float momentum;
  float rate;
};

}  // namespace plimsoll::kernels::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t kLanes = hn::MaxLanes(Tag());

struct AdamVectors {
  explicit AdamVectors(const AdamConstants& c)
      : multiplier(hn::Set(Tag(), c.multiplier)),
        coupled_decay(hn::Set(Tag(), c.coupled_decay)),
        beta1(hn::Set(Tag(), c.beta1)),
        one_minus_beta1(hn::Set(Tag(), c.one_minus_beta1)),
        beta2(hn::Set(Tag(), c.beta2)),
        one_minus_beta2(hn::Set(Tag(), c.one_minus_beta2)),
        keep(hn::Set(Tag(), c.keep)),
        rate(hn::Set(Tag(), c.rate)),
        spread(hn::Set(Tag(), c.spread)),
        eps(hn::Set(Tag(), c.eps)) {}

  HWY_INLINE void update(Vector gradient, Vector& weight, Vector& m, Vector& v) const {
    const Vector g = hn::MulAdd(weight, coupled_decay, hn::Mul(gradient, multiplier));
    m = hn::MulAdd(m, beta1, hn::Mul(g, one_minus_beta1));
    v = hn::MulAdd(v, beta2, hn::Mul(hn::Mul(g, g), one_minus_beta2));
    const Vector step = hn::Div(hn::Mul(m, rate), hn::MulAdd(hn::Sqrt(v), spread, eps));
    weight = hn::MulSub(weight, keep, step);
  }

  Vector multiplier, coupled_decay, beta1, one_minus_beta1, beta2, one_minus_beta2, keep, rate, spread, eps;
};

void adam_span(const AdamConstants& constants, const AdamSpan& span, std::int64_t count) {
  const Tag d;
  const AdamVectors adam(constants);
  std::int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) {
    Vector weight = load(d, span.weight + index);
    Vector m = load(d, span.m + index);
    Vector v = load(d, span.v + index);
    adam.update(load(d, span.gradient + index), weight, m, v);
    store(d, weight, span.weight + index);
    store(d, m, span.m + index);
    store(d, v, span.v + index);
  }
  const auto rest = static_cast<std::size_t>(count - index);
  if (rest == 0) return;
  Vector weight = load_n(d, span.weight + index, rest);
  Vector m = load_n(d, span.m + index, rest);
  Vector v = load_n(d, span.v + index, rest);
  adam.update(load_n(d, span.gradient + index, rest), weight, m, v);
  store_n(d, weight, span.weight + index, rest);
  store_n(d, m, span.m + index, rest);
  store_n(d, v, span.v + index, rest);
}

// velocity null: no momentum.
void sgd_span(const SgdConstants& constants, const float* gradient, float* weight, float* velocity, std::int64_t count) {
  const Tag d;
  const Vector multiplier = hn::Set(d, constants.multiplier);
  const Vector decay = hn::Set(d, constants.decay);
  const Vector momentum = hn::Set(d, constants.momentum);
  const Vector rate = hn::Set(d, constants.rate);
  const auto direction = [&](Vector g, Vector w) HWY_ATTR { return hn::MulAdd(w, decay, hn::Mul(g, multiplier)); };
  std::int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) {
    const Vector w = load(d, weight + index);
    Vector step = direction(load(d, gradient + index), w);
    if (velocity != nullptr) {
      step = hn::MulAdd(load(d, velocity + index), momentum, step);
      store(d, step, velocity + index);
    }
    store(d, hn::NegMulAdd(step, rate, w), weight + index);
  }
  const auto rest = static_cast<std::size_t>(count - index);
  if (rest == 0) return;
  const Vector w = load_n(d, weight + index, rest);
  Vector step = direction(load_n(d, gradient + index, rest), w);
  if (velocity != nullptr) {
    step = hn::MulAdd(load_n(d, velocity + index, rest), momentum, step);
    store_n(d, step, velocity + index, rest);
  }
  store_n(d, hn::NegMulAdd(step, rate, w), weight + index, rest);
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(adam_span);
HWY_EXPORT(sgd_span);

namespace {

constexpr std::int64_t kGrain = 8 * kBlock;

// Calls update(gradient in f32, first, count) over all elements, unless the step is skipped. An f32 gradient without a
// copy to make goes in one piece per thread; else block by block, each copied while it is in the cache.
template <typename Update>
void update_all(const Call& call, const Tensor* copy, const Update& update) {
  const Tensor& gradient = call.inputs[1];
  const Tensor& weight = call.outputs[0];
  const bool in_one_piece = copy == nullptr && gradient.type.dtype == base::DType::f32;
  parallel_ranges(call.threads, weight.type.shape.elements(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    if (in_one_piece) return update(gradient.as<const float>() + begin, begin, end - begin);
    for (std::int64_t first = begin; first < end; first += kBlock) {
      alignas(64) float buffer[kBlock];
      const std::int64_t count = std::min(kBlock, end - first);
      update(read_f32(gradient, first, count, buffer), first, count);
      if (copy != nullptr) narrow(copy->type.dtype, weight.as<const float>() + first, element_address(*copy, first), count);
    }
  });
}

AdamConstants adam_constants(const ops::AdamUpdate& op, const ops::StepScalars& scalars) {
  const double t = static_cast<double>(scalars.updates + 1);
  const double lr = scalars.learning_rate;
  return {.multiplier = scalars.gradient_multiplier,
          .coupled_decay = op.decoupled ? 0.0f : static_cast<float>(op.weight_decay),
          .beta1 = static_cast<float>(op.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - op.beta1),
          .beta2 = static_cast<float>(op.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - op.beta2),
          .keep = op.decoupled ? static_cast<float>(1.0 - lr * op.weight_decay) : 1.0f,
          .rate = static_cast<float>(lr / (1.0 - std::pow(op.beta1, t))),
          .spread = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(op.beta2, t))),
          .eps = static_cast<float>(op.eps)};
}

void run_adam(const Call& call) {
  const auto& op = std::get<ops::AdamUpdate>(call.op);
  const auto& scalars = *call.inputs[0].as<const ops::StepScalars>();
  if (scalars.skip != 0) return;
  const AdamConstants constants = adam_constants(op, scalars);
  auto* weight = call.outputs[0].as<float>();
  auto* m = call.outputs[1].as<float>();
  auto* v = call.outputs[2].as<float>();
  update_all(call, op.copy ? &call.outputs[3] : nullptr, [&](const float* gradient, std::int64_t first, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(adam_span)(constants, {gradient, weight + first, m + first, v + first}, count);
  });
}

void run_sgd(const Call& call) {
  const auto& op = std::get<ops::SgdUpdate>(call.op);
  const auto& scalars = *call.inputs[0].as<const ops::StepScalars>();
  if (scalars.skip != 0) return;
  const SgdConstants constants{.multiplier = scalars.gradient_multiplier,
                               .decay = static_cast<float>(op.weight_decay),
                               .momentum = static_cast<float>(op.momentum),
                               .rate = scalars.learning_rate};
  auto* weight = call.outputs[0].as<float>();
  auto* velocity = op.momentum != 0.0 ? call.outputs[1].as<float>() : nullptr;
  update_all(call, op.copy ? &call.outputs.back() : nullptr, [&](const float* gradient, std::int64_t first, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(sgd_span)(constants, gradient, weight + first, velocity == nullptr ? nullptr : velocity + first, count);
  });
}

constexpr std::array kKernels{
    Kernel{.op = "adam_update", .name = "adam_update.simd", .refusal = refuse_other_floats, .run = run_adam},
    Kernel{.op = "sgd_update", .name = "sgd_update.simd", .refusal = refuse_other_floats, .run = run_sgd},
};

}  // namespace

std::span<const Kernel> optimizer_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif

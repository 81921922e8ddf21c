// AdamW, Adam and SGD updates, fused: each operand passes through memory once (28 bytes a parameter for AdamW in f32),
// which is all that limits them. What only leaves, a weight in the model's type for another device, goes around the caches: a line that
// is written whole need not be read first. State in leaner forms (ops/forms) is f32 block by block, in the first-level cache.
#include <algorithm>
#include <array>
#include <cstring>

#include <hwy/cache_control.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/state_forms.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/update_and_cast.h"
#include "ops/adam_step.h"
#include "ops/forms/bf16.h"
#include "ops/forms/random_rounding.h"
#include "ops/forms/split.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

#ifndef PLIMSOLL_KERNELS_CPU_OPTIMIZER_ONCE
#define PLIMSOLL_KERNELS_CPU_OPTIMIZER_ONCE
namespace plimsoll::kernels::cpu {

// ops::AdamUpdate with the constants of a step gathered.
struct AdamNumbers {
  ops::AdamStep step;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
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
  explicit AdamVectors(const AdamNumbers& c)
      : multiplier(hn::Set(Tag(), c.step.multiplier)),
        coupled_decay(hn::Set(Tag(), c.step.coupled_decay)),
        beta1(hn::Set(Tag(), c.beta1)),
        one_minus_beta1(hn::Set(Tag(), c.one_minus_beta1)),
        beta2(hn::Set(Tag(), c.beta2)),
        one_minus_beta2(hn::Set(Tag(), c.one_minus_beta2)),
        keep(hn::Set(Tag(), c.step.keep)),
        rate(hn::Set(Tag(), c.step.rate)),
        spread(hn::Set(Tag(), c.step.spread)),
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

void adam_span(const AdamNumbers& constants, const AdamSpan& span, std::int64_t count) {
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

// A copy around the caches, where it is aligned as that needs.
void send_bytes(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count) {
  const hn::ScalableTag<std::uint8_t> d;
  constexpr auto kWidth = static_cast<std::int64_t>(hn::MaxLanes(d));
  std::int64_t index = 0;
  if (reinterpret_cast<std::uintptr_t>(dst) % static_cast<std::uintptr_t>(kWidth) == 0) {
    for (; index + kWidth <= count; index += kWidth) hn::Stream(hn::LoadU(d, src + index), d, dst + index);
  }
  std::memcpy(dst + index, src + index, static_cast<std::size_t>(count - index));
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(adam_span);
HWY_EXPORT(sgd_span);
HWY_EXPORT(send_bytes);

namespace {

// Threads take pieces of so many elements as they come to it: beside a GPU some core always has something else to do, and all would
// wait for the thread that shares it.
constexpr std::int64_t kGrain = 32 * kBlock;

template <typename Body>
void in_pieces(int threads, std::int64_t count, const Body& body) {
  const std::int64_t pieces = (count + kGrain - 1) / kGrain;
  const int wanted = static_cast<int>(std::clamp<std::int64_t>(pieces, 1, threads));
#pragma omp parallel for schedule(dynamic) num_threads(wanted)
  for (std::int64_t piece = 0; piece < pieces; ++piece) body(piece * kGrain, std::min(count, (piece + 1) * kGrain));
}

// The weight in the model's type, where the update makes it too.
struct Copy {
  const Tensor* to = nullptr;
  bool leaves = false;  // nobody here reads it
};

// One tensor that an update writes: where it lies if that is f32, else in a block of the cache, from which it is rounded.
class Stored {
 public:
  Stored(const Tensor* tensor, RoundedState state) : tensor_(tensor), state_(state) {}

  bool exists() const { return tensor_ != nullptr; }
  bool is_rounded() const { return exists() && tensor_->type.dtype != base::DType::f32; }
  std::uint16_t* halves(std::int64_t first) const { return tensor_->as<std::uint16_t>() + first; }
  // Null where there is no such tensor.
  float* room(std::int64_t first, float* block) const { return is_rounded() ? block : exists() ? tensor_->as<float>() + first : nullptr; }
  float* values(std::int64_t first, std::int64_t count, float* block) const {
    if (is_rounded()) widen(tensor_->type.dtype, halves(first), block, count);
    return room(first, block);
  }
  // Passes over a block read one operand after the other: more short streams than the processor foresees by itself.
  void prefetch(std::int64_t first, std::int64_t count) const {
    if (!is_rounded()) return;
    constexpr std::int64_t kLine = 64 / sizeof(std::uint16_t);
    for (std::int64_t index = first; index < first + count; index += kLine) hwy::Prefetch(halves(index));
  }
  void put_back(std::int64_t first, std::int64_t count, const float* values, const std::uint32_t* words) const {
    if (is_rounded()) narrow_at_random(values, words, state_, halves(first), count);
  }

 private:
  const Tensor* tensor_;
  RoundedState state_;
};

// What an update of some elements works on, in f32.
struct Elements {
  const float* gradient;
  float* weight;
  float* state0;  // null: none
  float* state1;
  std::int64_t count;
};

struct Blocks {
  alignas(64) float gradient[kBlock];
  alignas(64) float weight[kBlock];
  alignas(64) float state0[kBlock];
  alignas(64) float state1[kBlock];
  alignas(64) std::uint32_t words[kBlock];
};

class Updated {
 public:
  Updated(const Call& call, int states, bool split, const Copy& copy)
      : gradient_(call.inputs[1]),
        weight_(&call.outputs[0], RoundedState::weight),
        state0_(states > 0 ? &call.outputs[1] : nullptr, RoundedState::first),
        state1_(states > 1 ? &call.outputs[2] : nullptr, RoundedState::second),
        low_(split ? call.outputs[3].as<std::uint16_t>() : nullptr),
        copy_(copy),
        rounds_((weight_.is_rounded() && !split) || state0_.is_rounded() || state1_.is_rounded()),
        key_(ops::rounding_key(*call.inputs[0].as<const ops::StepScalars>())) {}

  // Everything lies in memory as the update takes it, and it makes nothing else.
  bool is_plain() const { return copy_.to == nullptr && gradient_.type.dtype == base::DType::f32 && !rounds_ && low_ == nullptr; }

  Elements in_memory(std::int64_t first, std::int64_t count) const {
    return {gradient_.as<const float>() + first, weight_.room(first, nullptr), state0_.room(first, nullptr), state1_.room(first, nullptr),
            count};
  }

  // `next`: how many elements the block behind has.
  template <typename Update>
  void run_block(std::int64_t first, std::int64_t count, std::int64_t next, const Update& update) const {
    Blocks blocks;
    for (const Stored* stored : {&weight_, &state0_, &state1_}) stored->prefetch(first + count, next);
    const Elements e{read_f32(gradient_, first, count, blocks.gradient),
                     low_ != nullptr ? blocks.weight : weight_.values(first, count, blocks.weight),
                     state0_.values(first, count, blocks.state0), state1_.values(first, count, blocks.state1), count};
    if (low_ != nullptr) join_halves(weight_.halves(first), low_ + first, e.state1, e.weight, count);
    if (rounds_) draw_rounding(key_, e.gradient, e.weight, e.state0, blocks.words, count);
    update(e);
    if (low_ != nullptr) {
      split_halves(e.weight, weight_.halves(first), low_ + first, e.state1, count);
    } else {
      weight_.put_back(first, count, e.weight, blocks.words);
    }
    state0_.put_back(first, count, e.state0, blocks.words);
    state1_.put_back(first, count, e.state1, blocks.words);
    if (copy_.to != nullptr) make_copy(first, count, e.weight, blocks.gradient);
  }

  // Of a weight that was rounded, as it was rounded.
  void make_copy(std::int64_t first, std::int64_t count, const float* made, float* buffer) const {
    std::byte* to = element_address(*copy_.to, first);
    const base::DType dtype = copy_.to->type.dtype;
    const void* narrowed = weight_.is_rounded() ? static_cast<const void*>(weight_.halves(first)) : buffer;
    if (!copy_.leaves || dtype == base::DType::f32) {
      if (weight_.is_rounded()) {
        std::memcpy(to, narrowed, static_cast<std::size_t>(2 * count));
      } else {
        narrow(dtype, made, to, count);
      }
      return;
    }
    if (!weight_.is_rounded()) narrow(dtype, made, buffer, count);
    HWY_DYNAMIC_DISPATCH(send_bytes)(static_cast<const std::uint8_t*>(narrowed), reinterpret_cast<std::uint8_t*>(to), 2 * count);
  }

 private:
  const Tensor& gradient_;
  Stored weight_;
  Stored state0_;
  Stored state1_;
  std::uint16_t* low_;  // null: the weight is not split
  Copy copy_;
  bool rounds_;
  base::RandomKey key_;
};

// Calls update(elements) over all elements. Where all is f32 and there is no copy to make, they go in one piece per thread; else block by
// block, each rounded and copied while it is in the cache.
template <typename Update>
void update_all(const Call& call, const Updated& updated, bool leaves, const Update& update) {
  in_pieces(call.threads, call.outputs[0].type.shape.elements(), [&](std::int64_t begin, std::int64_t end) {
    if (updated.is_plain()) return update(updated.in_memory(begin, end - begin));
    for (std::int64_t first = begin; first < end; first += kBlock) {
      const std::int64_t count = std::min(kBlock, end - first);
      updated.run_block(first, count, std::min(kBlock, end - first - count), update);
    }
    if (leaves) hwy::FlushStream();
  });
}

AdamNumbers adam_numbers(const ops::AdamUpdate& op, const ops::StepScalars& scalars) {
  const ops::AdamConstants constants{.beta1 = op.beta1, .beta2 = op.beta2, .weight_decay = op.weight_decay, .decoupled = op.decoupled};
  return {.step = ops::adam_step(constants, scalars.learning_rate, scalars.gradient_multiplier, scalars.updates + 1),
          .beta1 = static_cast<float>(op.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - op.beta1),
          .beta2 = static_cast<float>(op.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - op.beta2),
          .eps = static_cast<float>(op.eps)};
}

void update_adam(const Call& call, const Copy& copy) {
  const auto& op = std::get<ops::AdamUpdate>(call.op);
  const AdamNumbers numbers = adam_numbers(op, *call.inputs[0].as<const ops::StepScalars>());
  update_all(call, Updated(call, 2, op.split, copy), copy.leaves,
             [&](const Elements& e) { HWY_DYNAMIC_DISPATCH(adam_span)(numbers, {e.gradient, e.weight, e.state0, e.state1}, e.count); });
}

void update_sgd(const Call& call, const Copy& copy) {
  const auto& op = std::get<ops::SgdUpdate>(call.op);
  const auto& scalars = *call.inputs[0].as<const ops::StepScalars>();
  const SgdConstants constants{.multiplier = scalars.gradient_multiplier,
                               .decay = static_cast<float>(op.weight_decay),
                               .momentum = static_cast<float>(op.momentum),
                               .rate = scalars.learning_rate};
  update_all(call, Updated(call, op.momentum != 0.0 ? 1 : 0, false, copy), copy.leaves,
             [&](const Elements& e) { HWY_DYNAMIC_DISPATCH(sgd_span)(constants, e.gradient, e.weight, e.state0, e.count); });
}

bool is_skipped(const Call& call) { return call.inputs[0].as<const ops::StepScalars>()->skip != 0; }

void run_adam(const Call& call) {
  if (!is_skipped(call)) update_adam(call, {std::get<ops::AdamUpdate>(call.op).copy ? &call.outputs.back() : nullptr, false});
}

void run_sgd(const Call& call) {
  if (!is_skipped(call)) update_sgd(call, {std::get<ops::SgdUpdate>(call.op).copy ? &call.outputs.back() : nullptr, false});
}

constexpr std::array kKernels{
    Kernel{.op = "adam_update", .name = "adam_update.simd", .refusal = refuse_other_floats, .run = run_adam},
    Kernel{.op = "sgd_update", .name = "sgd_update.simd", .refusal = refuse_other_floats, .run = run_sgd},
};

}  // namespace

std::span<const Kernel> optimizer_kernels() { return kKernels; }

bool updates_and_casts(std::string_view kernel) { return kernel == kKernels[0].name || kernel == kKernels[1].name; }

void run_update_with_leaving_copy(const Call& update) {
  if (is_skipped(update)) return;
  if (std::holds_alternative<ops::AdamUpdate>(update.op)) {
    update_adam(update, {&update.outputs.back(), true});
  } else {
    update_sgd(update, {&update.outputs.back(), true});
  }
}

void run_update_and_cast(const Call& update, const Tensor& cast) {
  if (is_skipped(update)) {
    in_pieces(update.threads, cast.type.shape.elements(), [&](std::int64_t begin, std::int64_t end) {
      narrow(cast.type.dtype, update.outputs[0].as<const float>() + begin, element_address(cast, begin), end - begin);
    });
  } else if (std::holds_alternative<ops::AdamUpdate>(update.op)) {
    update_adam(update, {&cast, true});
  } else {
    update_sgd(update, {&cast, true});
  }
}

}  // namespace plimsoll::kernels::cpu
#endif

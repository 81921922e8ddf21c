// Updates by any rule (ops/optim), fused: each operand passes through memory once (28 bytes a parameter for AdamW in f32), which is all
// that limits them. The rule's row brings its arithmetic for the processor at hand. What only leaves, a weight in the model's type for
// another device, goes around the caches: a line that is written whole need not be read first. State in leaner forms (ops/forms) is f32
// block by block, in the first-level cache.
#include <algorithm>
#include <array>
#include <cstring>

#include <hwy/cache_control.h>

#include "base/processor.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/state_forms.h"
#include "kernels/cpu/table.h"
#include "ops/forms/bf16.h"
#include "ops/forms/random_rounding.h"
#include "ops/forms/split.h"
#include "ops/op.h"
#include "ops/step_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

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
  Stored() = default;
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
  const Tensor* tensor_ = nullptr;
  RoundedState state_ = RoundedState::weight;
};

constexpr RoundedState kRoundedStates[] = {RoundedState::first, RoundedState::second};
static_assert(std::size(kRoundedStates) == ops::kMostRuleStates);

struct Blocks {
  alignas(64) float gradient[kBlock];
  alignas(64) float weight[kBlock];
  alignas(64) float state[ops::kMostRuleStates][kBlock];
  alignas(64) std::uint32_t words[kBlock];
};

ops::RuleCode code_of_processor() {
  const base::Isa isa = base::processor().isa;
  return isa >= base::Isa::avx512 ? ops::RuleCode::avx512 : isa >= base::Isa::avx2 ? ops::RuleCode::avx2 : ops::RuleCode::plain;
}

class Updating {
 public:
  Updating(const Call& call, const ops::Update& op, const Copy& copy)
      : call_(call),
        gradient_(call.inputs[1]),
        weight_(&call.outputs[0], RoundedState::weight),
        states_(op.states()),
        low_(op.split ? call.outputs[op.low()].as<std::uint16_t>() : nullptr),
        copy_(copy),
        update_(op.rule->update[static_cast<std::size_t>(code_of_processor())]) {
    const auto& scalars = *call.inputs[0].as<const ops::StepScalars>();
    step_ = op.rule->prepare(op.inputs(scalars));
    key_ = ops::rounding_key(scalars);
    rounds_ = weight_.is_rounded() && !op.split;
    for (std::size_t index = 0; index < states_; ++index) {
      state_[index] = Stored(&call.outputs[1 + index], kRoundedStates[index]);
      rounds_ = rounds_ || state_[index].is_rounded();
    }
  }

  // Where all is f32 and there is no copy to make, elements go in one piece per thread; else block by block, each rounded and copied while
  // it is in the cache.
  void run() const {
    in_pieces(call_.threads, call_.outputs[0].type.shape.elements(), [&](std::int64_t begin, std::int64_t end) {
      if (is_plain()) return update_(step_, in_memory(begin, end - begin));
      for (std::int64_t first = begin; first < end; first += kBlock) {
        const std::int64_t count = std::min(kBlock, end - first);
        run_block(first, count, std::min(kBlock, end - first - count));
      }
      if (copy_.leaves) hwy::FlushStream();
    });
  }

 private:
  // Everything lies in memory as the update takes it, and it makes nothing else.
  bool is_plain() const { return copy_.to == nullptr && gradient_.type.dtype == base::DType::f32 && !rounds_ && low_ == nullptr; }

  ops::RuleSpan<float> in_memory(std::int64_t first, std::int64_t count) const {
    return {.gradient = gradient_.as<const float>() + first,
            .weight = weight_.room(first, nullptr),
            .state = {state_[0].room(first, nullptr), state_[1].room(first, nullptr)},
            .count = count};
  }

  // `next`: how many elements the block behind has.
  void run_block(std::int64_t first, std::int64_t count, std::int64_t next) const {
    Blocks blocks;
    weight_.prefetch(first + count, next);
    for (const Stored& state : state_) state.prefetch(first + count, next);
    ops::RuleSpan<float> span{.gradient = read_f32(gradient_, first, count, blocks.gradient),
                              .weight = low_ != nullptr ? blocks.weight : weight_.values(first, count, blocks.weight),
                              .count = count};
    for (std::size_t index = 0; index < states_; ++index) span.state[index] = state_[index].values(first, count, blocks.state[index]);
    float* const signs = span.state[ops::kSignState];
    if (low_ != nullptr) join_halves(weight_.halves(first), low_ + first, signs, span.weight, count);
    if (rounds_) draw_rounding(key_, span.gradient, span.weight, span.state[0], blocks.words, count);
    update_(step_, span);
    if (low_ != nullptr) {
      split_halves(span.weight, weight_.halves(first), low_ + first, signs, count);
    } else {
      weight_.put_back(first, count, span.weight, blocks.words);
    }
    for (std::size_t index = 0; index < states_; ++index) state_[index].put_back(first, count, span.state[index], blocks.words);
    if (copy_.to != nullptr) make_copy(first, count, span.weight, blocks.gradient);
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

  const Call& call_;
  const Tensor& gradient_;
  Stored weight_;
  std::size_t states_;
  std::array<Stored, ops::kMostRuleStates> state_{};
  std::uint16_t* low_;  // null: the weight is not split
  Copy copy_;
  void (*update_)(const ops::RuleStep&, const ops::RuleSpan<float>&);
  ops::RuleStep step_{};
  base::RandomKey key_{};
  bool rounds_ = false;
};

// What the update makes beside the weight and its states.
Copy copy_of(const ops::Update& op, const Call& call) {
  if (op.sends) return {&call.outputs.back(), true};
  return {op.copy ? &call.outputs.back() : nullptr, op.leaves};
}

// Where nothing is updated, what is sent is the weight as it is.
void send_weight(const Call& call, const Tensor& to) {
  in_pieces(call.threads, to.type.shape.elements(), [&](std::int64_t begin, std::int64_t end) {
    narrow(to.type.dtype, call.outputs[0].as<const float>() + begin, element_address(to, begin), end - begin);
  });
}

void run_update(const Call& call) {
  const auto& op = std::get<ops::Update>(call.op);
  if (call.inputs[0].as<const ops::StepScalars>()->skip == 0) return Updating(call, op, copy_of(op, call)).run();
  if (op.sends) send_weight(call, call.outputs.back());
}

constexpr std::array kKernels{
    Kernel{.op = "update", .name = "update.simd", .refusal = refuse_other_floats, .run = run_update},
};

}  // namespace

std::span<const Kernel> optimizer_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif

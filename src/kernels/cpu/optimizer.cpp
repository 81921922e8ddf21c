// Updates by any rule (ops/optim), fused: each operand passes through memory once (28 bytes a parameter for AdamW in f32), which is all
// that limits them. The rule's row brings its arithmetic for the processor at hand. What only leaves, a weight in the model's type for
// another device, goes around the caches: a line that is written whole need not be read first. State in leaner forms (ops/forms) is f32
// block by block, in the first-level cache.
#include <algorithm>
#include <array>
#include <cstring>

#include <hwy/cache_control.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/state_forms.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
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

// What updates and their preludes read of a parameter.
class Kept {
 public:
  // `kept`: the weight, its states, its lower halves.
  Kept(const ops::Update& op, const Tensor& gradient, std::span<const Tensor> kept)
      : gradient_(gradient),
        weight_(&kept[0], RoundedState::weight),
        states_(op.states()),
        low_(op.split ? kept[op.low()].as<std::uint16_t>() : nullptr) {
    rounds_ = weight_.is_rounded() && !op.split;
    for (std::size_t index = 0; index < states_; ++index) {
      state_[index] = Stored(&kept[1 + index], kRoundedStates[index]);
      rounds_ = rounds_ || state_[index].is_rounded();
    }
  }

  // Everything lies in memory as rules take it.
  bool is_plain() const { return gradient_.type.dtype == base::DType::f32 && !rounds_ && low_ == nullptr; }

  ops::RuleSpan<float> in_memory(std::int64_t first, std::int64_t count) const {
    return {.gradient = gradient_.as<const float>() + first,
            .weight = weight_.room(first, nullptr),
            .state = {state_[0].room(first, nullptr), state_[1].room(first, nullptr)},
            .count = count};
  }

  // In f32, in the blocks where it is not in memory. What is in memory changes only where `writes`: signs that belong to the weight are
  // taken off their state.
  ops::RuleSpan<float> in_blocks(std::int64_t first, std::int64_t count, Blocks& blocks, bool writes) const {
    ops::RuleSpan<float> span{.gradient = read_f32(gradient_, first, count, blocks.gradient),
                              .weight = low_ != nullptr ? blocks.weight : weight_.values(first, count, blocks.weight),
                              .count = count};
    for (std::size_t index = 0; index < states_; ++index) span.state[index] = state_[index].values(first, count, blocks.state[index]);
    if (low_ == nullptr) return span;
    float*& signs = span.state[ops::kSignState];
    if (!writes && signs != blocks.state[ops::kSignState]) {
      std::memcpy(blocks.state[ops::kSignState], signs, static_cast<std::size_t>(count) * sizeof(float));
      signs = blocks.state[ops::kSignState];
    }
    join_halves(weight_.halves(first), low_ + first, signs, span.weight, count);
    return span;
  }

 protected:
  const Tensor& gradient_;
  Stored weight_;
  std::size_t states_;
  std::array<Stored, ops::kMostRuleStates> state_{};
  std::uint16_t* low_;  // null: the weight is not split
  bool rounds_ = false;
};

ops::RuleStep step_of(const ops::Update& op, const ops::StepScalars& scalars) { return op.rule->prepare(op.inputs(scalars)); }

class Updating : public Kept {
 public:
  Updating(const Call& call, const ops::Update& op, const Copy& copy)
      : Kept(op, call.inputs[1], call.outputs), call_(call), copy_(copy), update_(op.rule->update.here()) {
    const auto& scalars = *call.inputs[0].as<const ops::StepScalars>();
    step_ = step_of(op, scalars);
    key_ = ops::rounding_key(scalars);
    if (!op.prelude) return;
    const Tensor& prelude = call.inputs[op.prelude_operand()];
    if (op.rule->prelude == ops::Prelude::matrix) {
      direction_ = prelude.as<float>();
    } else {
      ops::RuleSums sums{};
      for (std::size_t index = 0; index < sums.size(); ++index) sums[index] = prelude.as<const ops::ParameterSums>()->sum[index].value();
      op.rule->scale(step_, sums);
    }
  }

  // Where all is f32 and there is no copy to make, elements go in one piece per thread; else block by block, each rounded and copied while
  // it is in the cache.
  void run() const {
    in_pieces(call_.threads, call_.outputs[0].type.shape.elements(), [&](std::int64_t begin, std::int64_t end) {
      if (is_plain() && copy_.to == nullptr) return update_(step_, directed(in_memory(begin, end - begin), begin));
      for (std::int64_t first = begin; first < end; first += kBlock) {
        const std::int64_t count = std::min(kBlock, end - first);
        run_block(first, count, std::min(kBlock, end - first - count));
      }
      if (copy_.leaves) hwy::FlushStream();
    });
  }

 private:
  ops::RuleSpan<float> directed(ops::RuleSpan<float> span, std::int64_t first) const {
    if (direction_ != nullptr) span.direction = direction_ + first;
    return span;
  }

  // `next`: how many elements the block behind has.
  void run_block(std::int64_t first, std::int64_t count, std::int64_t next) const {
    Blocks blocks;
    weight_.prefetch(first + count, next);
    for (const Stored& state : state_) state.prefetch(first + count, next);
    const ops::RuleSpan<float> span = directed(in_blocks(first, count, blocks, true), first);
    if (rounds_) draw_rounding(key_, span.gradient, span.weight, span.state[0], blocks.words, count);
    update_(step_, span);
    if (low_ != nullptr) {
      split_halves(span.weight, weight_.halves(first), low_ + first, span.state[ops::kSignState], count);
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
  Copy copy_;
  void (*update_)(const ops::RuleStep&, const ops::RuleSpan<float>&);
  ops::RuleStep step_{};
  base::RandomKey key_{};
  float* direction_ = nullptr;  // of a rule with a matrix
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

// ---- preludes

std::int64_t prelude_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  if (std::get<ops::UpdatePrelude>(query.op).is_sum()) workspace.take<ops::ParameterSums>(query.threads);
  return workspace.bytes();
}

void sum_parameter(const Call& call, const ops::UpdatePrelude& op, const Kept& kept, const ops::RuleStep& step) {
  const auto sum_block = op.update.rule->sum_block.here();
  const std::size_t sums = op.update.rule->sums;
  std::int64_t elements = call.inputs[1].type.shape.elements();
  if (op.counted >= 0) elements = std::clamp<std::int64_t>(op.counted - call.shard_place * op.shard, 0, elements);
  Workspace workspace(call.workspace);
  auto* own = workspace.take<ops::ParameterSums>(call.threads);
  std::fill_n(own, call.threads, ops::ParameterSums{});
  static_assert(kBlock == ops::kSumBlock);
  parallel_ranges(call.threads, elements, 32 * kBlock, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t first = begin; first < end; first += kBlock) {
      const std::int64_t count = std::min(kBlock, end - first);
      Blocks blocks;
      float found[ops::kMostRuleSums] = {};
      sum_block(step, kept.is_plain() ? kept.in_memory(first, count) : kept.in_blocks(first, count, blocks, false), found);
      for (std::size_t sum = 0; sum < sums; ++sum) own[thread].sum[sum].add(found[sum]);
    }
  });
  auto& total = *call.outputs[0].as<ops::ParameterSums>();
  if (!op.into) total = {};
  for (int thread = 0; thread < call.threads; ++thread) {
    for (std::size_t sum = 0; sum < sums; ++sum) total.sum[sum] += own[thread].sum[sum];
  }
}

void direct_parameter(const Call& call, const ops::UpdatePrelude& op, const Kept& kept, const ops::RuleStep& step) {
  const auto direct = op.update.rule->direct.here();
  in_pieces(call.threads, call.inputs[1].type.shape.elements(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += kBlock) {
      const std::int64_t count = std::min(kBlock, end - first);
      Blocks blocks;
      ops::RuleSpan<float> span = kept.is_plain() ? kept.in_memory(first, count) : kept.in_blocks(first, count, blocks, false);
      span.direction = call.outputs[0].as<float>() + first;
      direct(step, span);
    }
  });
}

void run_prelude(const Call& call) {
  const auto& op = std::get<ops::UpdatePrelude>(call.op);
  const Kept kept(op.update, call.inputs[1], call.inputs.subspan(ops::Update::kFirstKept));
  const ops::RuleStep step = step_of(op.update, *call.inputs[0].as<const ops::StepScalars>());
  op.is_sum() ? sum_parameter(call, op, kept, step) : direct_parameter(call, op, kept, step);
}

void run_merge_sums(const Call& call) {
  const auto* members = call.inputs[0].as<const ops::ParameterSums>();
  ops::ParameterSums all;
  for (std::int64_t member = 0; member < std::get<ops::MergeSums>(call.op).members; ++member) {
    for (std::size_t sum = 0; sum < all.sum.size(); ++sum) all.sum[sum] += members[member].sum[sum];
  }
  *call.outputs[0].as<ops::ParameterSums>() = all;
}

constexpr std::array kKernels{
    Kernel{.op = "update", .name = "update.simd", .refusal = refuse_other_floats, .run = run_update},
    Kernel{.op = "update_prelude",
           .name = "update_prelude.simd",
           .refusal = refuse_other_floats,
           .workspace = prelude_workspace,
           .run = run_prelude},
    Kernel{.op = "merge_sums", .name = "merge_sums.exact", .run = run_merge_sums},
};

}  // namespace

std::span<const Kernel> optimizer_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif

// The operators on the block of step scalars.
//
// Sums over tensors must be the same bits on every instruction set, device and split. A block of ops::kSumBlock
// elements is summed in f32 by a fixed rule, and block sums are added without rounding (base::ExactSum):
//   partial l (0 .. 15) adds the terms l, l + 16, l + 32, .. of the block in that order, each term rounded to f32 first
//   (no fused multiply-add); then partial l += partial l + 8, l + 4, l + 2, l + 1 for l below each.
// Compiled with -ffp-contract=off (CMakeLists.txt), as compilers otherwise fuse a square with its addition.
#include <algorithm>
#include <array>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"
#include "ops/step_rules.h"
#include "ops/step_scalars.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/scalars.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

constexpr std::int64_t kPartials = 16;
using Tag = hn::CappedTag<float, kPartials>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t kLanes = hn::MaxLanes(Tag());
constexpr std::int64_t kVectors = kPartials / kLanes;

template <bool kSquare>
HWY_INLINE float sum_block(const float* x, std::int64_t count) {
  const Tag d;
  HWY_ALIGN float partials[kPartials];
  std::int64_t index = 0;
  // One pass per vector of partials: on wide machines there is one, elsewhere the block is in the first-level cache.
  for (std::int64_t vector = 0; vector < kVectors; ++vector) {
    Vector sum = hn::Zero(d);
    for (index = 0; index + kPartials <= count; index += kPartials) {
      const Vector term = load(d, x + index + vector * kLanes);
      sum = hn::Add(sum, kSquare ? hn::Mul(term, term) : term);
    }
    hn::Store(sum, d, partials + vector * kLanes);
  }
  for (std::int64_t partial = 0; index < count; ++index, ++partial) {
    const float term = kSquare ? x[index] * x[index] : x[index];
    partials[partial] += term;
  }
  for (std::int64_t half = kPartials / 2; half > 0; half /= 2) {
    for (std::int64_t partial = 0; partial < half; ++partial) partials[partial] += partials[partial + half];
  }
  return partials[0];
}

void sum_terms(const float* x, std::int64_t count, float& sum) { sum = sum_block<false>(x, count); }
void sum_squares(const float* x, std::int64_t count, float& sum) { sum = sum_block<true>(x, count); }

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(sum_terms);
HWY_EXPORT(sum_squares);

namespace {

// Scalars are written in place; a caller that gave two blocks gets the first one's values carried over.
ops::StepScalars& scalars_of(const Call& call) {
  auto* scalars = call.outputs[0].as<ops::StepScalars>();
  if (call.inputs[0].data != call.outputs[0].data) *scalars = *call.inputs[0].as<const ops::StepScalars>();
  return *scalars;
}

// One sum for each thread, on cache lines of its own.
struct alignas(64) ThreadSum {
  base::ExactSum sum;
};

std::int64_t sum_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  workspace.take<ThreadSum>(query.threads);
  return workspace.bytes();
}

// Adds block_sum of every block of the first `elements` of the tensor to `total`. Threads' sums are exact, so their order does not matter.
template <typename BlockSum>
void add_blocks(const Call& call, const Tensor& x, std::int64_t elements, base::ExactSum& total, const BlockSum& block_sum) {
  constexpr std::int64_t kGrain = 32 * ops::kSumBlock;
  Workspace workspace(call.workspace);
  auto* sums = workspace.take<ThreadSum>(call.threads);
  std::fill_n(sums, call.threads, ThreadSum{});
  parallel_ranges(call.threads, elements, kGrain, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t first = begin; first < end; first += ops::kSumBlock) {
      alignas(64) float buffer[ops::kSumBlock];
      const std::int64_t count = std::min(ops::kSumBlock, end - first);
      sums[thread].sum.add(block_sum(read_f32(x, first, count, buffer), count));
    }
  });
  for (int thread = 0; thread < call.threads; ++thread) total += sums[thread].sum;
}

void run_begin_step(const Call& call) { ops::begin_step(scalars_of(call)); }

void run_sum_loss(const Call& call) {
  add_blocks(call, call.inputs[1], call.inputs[1].type.shape.elements(), scalars_of(call).loss, [](const float* x, std::int64_t count) {
    float sum = 0.0f;
    HWY_DYNAMIC_DISPATCH(sum_terms)(x, count, sum);
    return sum;
  });
}

void run_squared_norm(const Call& call) {
  const auto& op = std::get<ops::SquaredNorm>(call.op);
  std::int64_t elements = call.inputs[1].type.shape.elements();
  if (op.counted >= 0) elements = std::clamp<std::int64_t>(op.counted - call.shard_place * op.shard, 0, elements);
  add_blocks(call, call.inputs[1], elements, scalars_of(call).squared_norm, [](const float* x, std::int64_t count) {
    float sum = 0.0f;
    HWY_DYNAMIC_DISPATCH(sum_squares)(x, count, sum);
    return sum;
  });
}

void run_prepare_update(const Call& call) {
  const auto& op = std::get<ops::PrepareUpdate>(call.op);
  ops::prepare_update(scalars_of(call), op.clip, op.check_finite);
}

void run_finish_step(const Call& call) {
  const auto& op = std::get<ops::FinishStep>(call.op);
  ops::finish_step(scalars_of(call), {.dynamic = op.dynamic,
                                      .window = op.window,
                                      .hysteresis = static_cast<std::int32_t>(op.hysteresis),
                                      .minimum = static_cast<float>(op.minimum)});
}

void run_merge_scalars(const Call& call) {
  const auto& op = std::get<ops::MergeScalars>(call.op);
  ops::merge_scalars(scalars_of(call), call.inputs[1].as<const ops::StepScalars>(), op.members, op.norm, op.add);
}

void run_check_rows(const Call& call) {
  ops::check_rows(scalars_of(call), *call.inputs[1].as<const std::int32_t>(), std::get<ops::CheckRows>(call.op).bound);
}

void run_fresh_scalars(const Call& call) { *call.outputs[0].as<ops::StepScalars>() = ops::StepScalars{}; }

constexpr std::array kKernels{
    Kernel{.op = "begin_step", .name = "begin_step.host", .run = run_begin_step},
    Kernel{.op = "sum_loss", .name = "sum_loss.simd", .refusal = refuse_other_floats, .workspace = sum_workspace, .run = run_sum_loss},
    Kernel{.op = "squared_norm",
           .name = "squared_norm.simd",
           .refusal = refuse_other_floats,
           .workspace = sum_workspace,
           .run = run_squared_norm},
    Kernel{.op = "prepare_update", .name = "prepare_update.host", .run = run_prepare_update},
    Kernel{.op = "finish_step", .name = "finish_step.host", .run = run_finish_step},
    Kernel{.op = "fresh_scalars", .name = "fresh_scalars.host", .run = run_fresh_scalars},
    Kernel{.op = "check_rows", .name = "check_rows.host", .run = run_check_rows},
    Kernel{.op = "merge_scalars", .name = "merge_scalars.host", .run = run_merge_scalars},
};

}  // namespace

std::span<const Kernel> scalar_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif

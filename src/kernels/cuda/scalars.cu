// The operators on the block of step scalars. Those that only change it are one thread's work on the device, so that no step waits
// for the host.
//
// Sums over tensors have the same bits as the processor's (kernels/cpu/scalars.cpp says the rule): of a block of ops::kSumBlock
// elements, partial l (0 .. 15) adds the terms l, l + 16, l + 32, .. in order, each rounded first; then the partials are halved.
// Block sums are then added as whole numbers, so atomics may do that: their order does not matter.
#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/table.h"
#include "ops/op.h"
#include "ops/step_rules.h"

namespace plimsoll::kernels::cuda {

namespace {

using ops::StepScalars;

// ---- sums

constexpr int kThreads = 256;
constexpr int kPartials = 16;
constexpr int kRounds = static_cast<int>(ops::kSumBlock) / kPartials;
constexpr int kAtOnce = 8;
// A lane takes 4 neighbouring partials, 4 lanes a block of elements.
constexpr int kLanes = kPartials / kPiece;
constexpr int kBlocksAtOnce = kThreads / kLanes;
static_assert(base::ExactSum::kLimbs < kThreads);

__device__ __forceinline__ float term(float value, bool square) { return square ? __fmul_rn(value, value) : value; }

// The sum of the block of elements that starts at `first`, in its first lane.
__device__ __forceinline__ float block_sum(const Span& x, std::int64_t first, std::int64_t elements, bool square, bool aligned) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float partial[kPiece] = {};
  for (int round = 0; round < kRounds; round += kAtOnce) {
    Raw raw[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) raw[k] = fetch(x, piece_at(first + (round + k) * kPartials + lane * kPiece, elements, aligned));
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      float values[kPiece];
      decode(raw[k], x.dtype, values);  // past the end: zeros, which change no sum
#pragma unroll
      for (int i = 0; i < kPiece; ++i) partial[i] = __fadd_rn(partial[i], term(values[i], square));
    }
  }
  // l += l + 8, then l + 4: the partners are two lanes and one lane further on. l + 2 and l + 1 are in the lane itself.
#pragma unroll
  for (int i = 0; i < kPiece; ++i) partial[i] = __fadd_rn(partial[i], __shfl_down_sync(kAllLanes, partial[i], 2, kLanes));
#pragma unroll
  for (int i = 0; i < kPiece; ++i) partial[i] = __fadd_rn(partial[i], __shfl_down_sync(kAllLanes, partial[i], 1, kLanes));
  return __fadd_rn(__fadd_rn(partial[0], partial[2]), __fadd_rn(partial[1], partial[3]));
}

// Several tensors in one launch.
constexpr int kMostTensors = 64;  // its arguments stay under 4 KB

struct SumBatch {
  base::ExactSum* total = nullptr;
  bool square = false;
  int tensors = 0;
  std::uint32_t end_block[kMostTensors];  // of each tensor
  Span x[kMostTensors];
  std::int64_t elements[kMostTensors];
};

__global__ void __launch_bounds__(kThreads, 4) add_block_sums(const __grid_constant__ SumBatch batch) {
  __shared__ base::ExactSum shared;
  if (threadIdx.x < base::ExactSum::kLimbs) shared.limbs[threadIdx.x] = 0;
  if (threadIdx.x == base::ExactSum::kLimbs) shared.not_finite = 0;
  __syncthreads();
  int tensor = 0;
  while (blockIdx.x >= batch.end_block[tensor]) ++tensor;
  const Span x = batch.x[tensor];
  const std::int64_t elements = batch.elements[tensor];
  const std::uint32_t first_block = tensor == 0 ? 0 : batch.end_block[tensor - 1];
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x - first_block) * kBlocksAtOnce + threadIdx.x / kLanes;
  const std::int64_t first = block * ops::kSumBlock;
  const float sum = block_sum(x, first, elements, batch.square, reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0);
  if (threadIdx.x % kLanes == 0 && first < elements) {
    base::ExactSum own;
    own.add(sum);
    for (int limb = 0; limb < base::ExactSum::kLimbs; ++limb) add_whole(&shared.limbs[limb], own.limbs[limb]);
    add_whole(&shared.not_finite, own.not_finite);
  }
  __syncthreads();
  if (threadIdx.x < base::ExactSum::kLimbs) add_whole(&batch.total->limbs[threadIdx.x], shared.limbs[threadIdx.x]);
  if (threadIdx.x == base::ExactSum::kLimbs) add_whole(&batch.total->not_finite, shared.not_finite);
}

// Scalars are written in place; a caller that gave two blocks gets the first one's values carried over.
StepScalars* scalars_of(const Call& call, cudaStream_t stream) {
  auto* scalars = call.outputs[0].as<StepScalars>();
  if (call.inputs[0].data != call.outputs[0].data) {
    check(cudaMemcpyAsync(scalars, call.inputs[0].data, sizeof(StepScalars), cudaMemcpyDeviceToDevice, stream), "step scalars");
  }
  return scalars;
}

std::int64_t counted_elements(const Call& call) {
  const std::int64_t elements = call.inputs[1].type.shape.elements();
  const auto* norm = std::get_if<ops::SquaredNorm>(&call.op);
  if (norm == nullptr || norm->counted < 0) return elements;
  return std::clamp<std::int64_t>(norm->counted - call.shard_place * norm->shard, 0, elements);
}

// All calls add to the scalars of the first.
void add_sums(std::span<const Call> calls, bool square, base::ExactSum* total, cudaStream_t stream) {
  while (!calls.empty()) {
    const std::span<const Call> now = calls.first(std::min<std::size_t>(calls.size(), kMostTensors));
    calls = calls.subspan(now.size());
    SumBatch batch;
    batch.total = total;
    batch.square = square;
    std::uint32_t blocks = 0;
    for (const Call& call : now) {
      batch.x[batch.tensors] = span_of(call.inputs[1]);
      batch.elements[batch.tensors] = counted_elements(call);
      blocks += blocks_for(batch.elements[batch.tensors], kBlocksAtOnce * ops::kSumBlock);
      batch.end_block[batch.tensors++] = blocks;
    }
    if (blocks > 0) add_block_sums<<<blocks, kThreads, 0, stream>>>(batch);
    check_launch("sum of blocks");
  }
}

void sum_loss(const Call& call, cudaStream_t stream) { add_sums({&call, 1}, false, &scalars_of(call, stream)->loss, stream); }

void squared_norms(std::span<const Call> calls, cudaStream_t stream) {
  if (!calls.empty()) add_sums(calls, true, &scalars_of(calls.front(), stream)->squared_norm, stream);
}

void squared_norm(const Call& call, cudaStream_t stream) { squared_norms({&call, 1}, stream); }

// ---- one thread's work

struct BeginRule {
  __device__ void operator()(StepScalars& scalars) const { ops::begin_step(scalars); }
};

struct PrepareRule {
  double clip;
  bool check_finite;
  __device__ void operator()(StepScalars& scalars) const { ops::prepare_update(scalars, clip, check_finite); }
};

struct FinishRule {
  ops::LossScaling scaling;
  __device__ void operator()(StepScalars& scalars) const { ops::finish_step(scalars, scaling); }
};

struct MergeRule {
  const StepScalars* all;
  std::int64_t members;
  bool norm;
  bool add;
  __device__ void operator()(StepScalars& scalars) const { ops::merge_scalars(scalars, all, members, norm, add); }
};

struct CheckRowsRule {
  const std::int32_t* count;
  std::int64_t bound;
  __device__ void operator()(StepScalars& scalars) const { ops::check_rows(scalars, *count, bound); }
};

struct FreshRule {
  __device__ void operator()(StepScalars& scalars) const { scalars = StepScalars{}; }
};

template <typename Rule>
__global__ void apply_rule(Rule rule, StepScalars* scalars) {
  rule(*scalars);
}

template <typename Rule>
void launch_rule(const Rule& rule, StepScalars* scalars, cudaStream_t stream) {
  apply_rule<<<1, 1, 0, stream>>>(rule, scalars);
  check_launch("step scalars");
}

void begin_step(const Call& call, cudaStream_t stream) { launch_rule(BeginRule{}, scalars_of(call, stream), stream); }

void prepare_update(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::PrepareUpdate>(call.op);
  launch_rule(PrepareRule{op.clip, op.check_finite}, scalars_of(call, stream), stream);
}

void finish_step(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::FinishStep>(call.op);
  const ops::LossScaling scaling{.dynamic = op.dynamic,
                                 .window = op.window,
                                 .hysteresis = static_cast<std::int32_t>(op.hysteresis),
                                 .minimum = static_cast<float>(op.minimum)};
  launch_rule(FinishRule{scaling}, scalars_of(call, stream), stream);
}

void merge_scalars(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::MergeScalars>(call.op);
  launch_rule(MergeRule{call.inputs[1].as<const StepScalars>(), op.members, op.norm, op.add}, scalars_of(call, stream), stream);
}

void check_rows(const Call& call, cudaStream_t stream) {
  launch_rule(CheckRowsRule{call.inputs[1].as<const std::int32_t>(), std::get<ops::CheckRows>(call.op).bound}, scalars_of(call, stream),
              stream);
}

void fresh_scalars(const Call& call, cudaStream_t stream) { launch_rule(FreshRule{}, call.outputs[0].as<StepScalars>(), stream); }

constexpr Kernel kKernels[] = {
    {.op = "begin_step", .name = "begin_step.device", .launch = begin_step},
    {.op = "sum_loss", .name = "sum_loss.blocks", .refusal = refuse_other_floats, .launch = sum_loss},
    {.op = "squared_norm",
     .name = "squared_norm.blocks",
     .refusal = refuse_other_floats,
     .launch = squared_norm,
     .launch_many = squared_norms},
    {.op = "prepare_update", .name = "prepare_update.device", .launch = prepare_update},
    {.op = "finish_step", .name = "finish_step.device", .launch = finish_step},
    {.op = "fresh_scalars", .name = "fresh_scalars.device", .launch = fresh_scalars},
    {.op = "check_rows", .name = "check_rows.device", .launch = check_rows},
    {.op = "merge_scalars", .name = "merge_scalars.device", .launch = merge_scalars},
};

}  // namespace

std::span<const Kernel> scalar_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

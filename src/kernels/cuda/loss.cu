// Cross-entropy over given logits: a block takes a row. The head with its loss is in a file of its own.
#include "kernels/cuda/checks.h"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/table.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // pieces that a thread has under way

struct LossArguments {
  Span logits;
  const std::int32_t* targets = nullptr;
  float* losses = nullptr;  // cross_entropy
  float* lses = nullptr;    // cross_entropy; what the gradient reads
  float* part = nullptr;    // cross_entropy_part: (rows, 2)
  Span dlogits;
  const ops::StepScalars* scalars = nullptr;
  const float* weights = nullptr;  // of the rows, in the place of what the scalars say
  std::int64_t width = 0;
  bool aligned = false;
};

// Calls use(columns, values) for the pieces of the block's row that are this thread's, kAtOnce of them at a time; columns that are not
// there have values of -infinity.
template <typename Use>
__device__ __forceinline__ void for_each_pieces(const LossArguments& a, const Use& use) {
  const std::int64_t start = blockIdx.x * a.width;
  for (std::int64_t first = threadIdx.x * kPiece; first < a.width; first += kThreads * kPiece * kAtOnce) {
    Piece columns[kAtOnce];
    Raw raw[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      columns[k] = piece_at(first + k * kThreads * kPiece, a.width, a.aligned);
      raw[k] = fetch(a.logits, {start + columns[k].first, columns[k].count, columns[k].whole});
    }
    float values[kAtOnce * kPiece];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      float four[kPiece];
      decode(raw[k], a.logits.dtype, four);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) values[k * kPiece + i] = i < columns[k].count ? four[i] : -INFINITY;
    }
    use(columns, values);
  }
}

// A target that is no column gives NaN, but for one that is elsewhere where the vocabulary is shared out.
__global__ void __launch_bounds__(kThreads) sum_rows(LossArguments a) {
  __shared__ SoftmaxSum shared[kThreads / kWarp];
  SoftmaxSum own;
  for_each_pieces(a, [&](const Piece(&)[kAtOnce], const float(&values)[kAtOnce * kPiece]) { own.add(values); });
  own = block_softmax_sum<kThreads>(own, shared);
  if (threadIdx.x != 0) return;
  const std::int64_t row = blockIdx.x;
  const std::int32_t target = a.targets[row];
  const float lse = own.log_sum_exp();
  float hit = 0.0f;
  if (target >= 0 && target < a.width) {
    hit = read_one(a.logits, row * a.width + target);
  } else if (target >= 0 && !(a.part != nullptr && target == ops::kElsewhere)) {
    hit = __int_as_float(0x7FFFFFFF);
  }
  if (a.part != nullptr) {
    a.part[2 * row] = lse;
    a.part[2 * row + 1] = hit;
  } else {
    a.lses[row] = lse;
    a.losses[row] = target < 0 ? 0.0f : lse - hit;
  }
}

__global__ void __launch_bounds__(kThreads) grad_rows(LossArguments a) {
  const std::int64_t row = blockIdx.x;
  const std::int32_t target = a.targets[row];
  const float lse = a.lses[row];
  const float scale = a.weights != nullptr ? a.weights[row] : a.scalars->loss_scale * a.scalars->inverse_tokens;
  for_each_pieces(a, [&](const Piece(&columns)[kAtOnce], const float(&values)[kAtOnce * kPiece]) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      float grad[kPiece];
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        const float hot = columns[k].first + i == target ? 1.0f : 0.0f;
        grad[i] = target < 0 ? 0.0f : (exp_below(values[k * kPiece + i] - lse) - hot) * scale;
      }
      write(a.dlogits, {row * a.width + columns[k].first, columns[k].count, columns[k].whole}, grad);
    }
  });
}

// all: (members, rows, 2).
__global__ void merge_rows(const float* all, const std::int32_t* targets, std::int64_t rows, std::int64_t members, float* losses,
                           float* lses) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float largest = all[2 * row];
  for (std::int64_t member = 1; member < members; ++member) largest = larger_of(largest, all[2 * (member * rows + row)]);
  float sum = 0.0f;
  float hit = 0.0f;
  for (std::int64_t member = 0; member < members; ++member) {
    sum += expf(all[2 * (member * rows + row)] - largest);
    hit += all[2 * (member * rows + row) + 1];
  }
  lses[row] = largest + logf(sum);
  losses[row] = targets[row] < 0 ? 0.0f : lses[row] - hit;
}

LossArguments arguments_of(const Call& call) {
  LossArguments a;
  a.logits = span_of(call.inputs[0]);
  a.targets = call.inputs[1].as<const std::int32_t>();
  a.width = call.inputs[0].type.shape[-1];
  a.aligned = is_aligned(a.logits.data) && a.width % kPiece == 0;
  return a;
}

void launch_sums(const LossArguments& a, const Call& call, cudaStream_t stream) {
  const std::int64_t rows = call.inputs[0].type.shape.rows();
  if (rows > 0) sum_rows<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(a);
  check_launch("cross_entropy");
}

void cross_entropy(const Call& call, cudaStream_t stream) {
  LossArguments a = arguments_of(call);
  a.losses = call.outputs[0].as<float>();
  a.lses = call.outputs[1].as<float>();
  launch_sums(a, call, stream);
}

void cross_entropy_part(const Call& call, cudaStream_t stream) {
  LossArguments a = arguments_of(call);
  a.part = call.outputs[0].as<float>();
  launch_sums(a, call, stream);
}

void cross_entropy_grad(const Call& call, cudaStream_t stream) {
  LossArguments a = arguments_of(call);
  a.lses = call.inputs[2].as<float>();
  if (std::get<ops::CrossEntropyGrad>(call.op).weighted) {
    a.weights = call.inputs[3].as<const float>();
  } else {
    a.scalars = call.inputs[3].as<const ops::StepScalars>();
  }
  a.dlogits = span_of(call.outputs[0]);
  a.aligned = a.aligned && is_aligned(a.dlogits.data);
  const std::int64_t rows = call.inputs[0].type.shape.rows();
  if (rows > 0) grad_rows<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(a);
  check_launch("cross_entropy_grad");
}

void cross_entropy_merge(const Call& call, cudaStream_t stream) {
  const std::int64_t rows = call.inputs[1].type.shape.elements();
  if (rows > 0) {
    merge_rows<<<blocks_for(rows, 128), 128, 0, stream>>>(call.inputs[0].as<const float>(), call.inputs[1].as<const std::int32_t>(), rows,
                                                          std::get<ops::CrossEntropyMerge>(call.op).members, call.outputs[0].as<float>(),
                                                          call.outputs[1].as<float>());
  }
  check_launch("cross_entropy_merge");
}

constexpr Kernel kKernels[] = {
    {.op = "cross_entropy", .name = "cross_entropy.rows", .refusal = refuse_other_floats, .launch = cross_entropy},
    {.op = "cross_entropy_part", .name = "cross_entropy_part.rows", .refusal = refuse_other_floats, .launch = cross_entropy_part},
    {.op = "cross_entropy_merge", .name = "cross_entropy_merge.rows", .launch = cross_entropy_merge},
    {.op = "cross_entropy_grad", .name = "cross_entropy_grad.rows", .refusal = refuse_other_floats, .launch = cross_entropy_grad},
};

}  // namespace

std::span<const Kernel> loss_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

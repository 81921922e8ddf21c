// Operators that remember: a pass over x, and the state in place.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/table.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kColumns = 32;  // of a block, one for each lane
constexpr int kWarps = 16;    // of a block; each sums every 16th row
constexpr int kThreads = 256;

// The warps' sums are added in their order, so every run has the same bits.
template <typename T>
__global__ void __launch_bounds__(kColumns* kWarps)
    average(const T* x, std::int64_t rows, std::int64_t width, float momentum, float* mean) {
  __shared__ float sums[kWarps][kColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  float sum = 0.0f;
  if (column < width) {
    for (std::int64_t row = threadIdx.y; row < rows; row += kWarps) sum += to_f32(x[row * width + column]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp][threadIdx.x];
  mean[column] = (1.0f - momentum) * mean[column] + momentum * (sum / static_cast<float>(rows));
}

template <typename T, typename R>
__global__ void __launch_bounds__(kThreads) round_with_feedback(const T* x, std::int64_t count, R* rounded, float* error) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= count) return;
  const float z = to_f32(x[index]) + error[index];
  const R result = from_f32<R>(z);
  const float back = to_f32(result);
  rounded[index] = result;
  error[index] = isfinite(back) ? z - back : 0.0f;
}

void running_mean(const Call& call, cudaStream_t stream) {
  const auto momentum = static_cast<float>(std::get<ops::RunningMean>(call.op).momentum);
  const Tensor& x = call.inputs[0];
  const std::int64_t width = x.type.shape[-1];
  with_element(x.type.dtype, [&](auto element) {
    average<<<blocks_for(width, kColumns), dim3(kColumns, kWarps), 0, stream>>>(x.as<const decltype(element)>(), x.type.shape.rows(), width,
                                                                                momentum, call.outputs[0].as<float>());
  });
  check_launch("running_mean");
}

void round_with_error(const Call& call, cudaStream_t stream) {
  const Tensor& x = call.inputs[0];
  const std::int64_t count = x.type.shape.elements();
  with_element(x.type.dtype, [&](auto from) {
    with_element(call.outputs[0].type.dtype, [&](auto to) {
      round_with_feedback<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(
          x.as<const decltype(from)>(), count, call.outputs[0].as<decltype(to)>(), call.outputs[1].as<float>());
    });
  });
  check_launch("round_with_error");
}

constexpr Kernel kKernels[] = {
    {.op = "running_mean", .name = "running_mean.columns", .refusal = refuse_other_floats, .launch = running_mean},
    {.op = "round_with_error", .name = "round_with_error.elements", .refusal = refuse_other_floats, .launch = round_with_error},
};

}  // namespace

std::span<const Kernel> stateful_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

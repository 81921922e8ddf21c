// Log-sum-exp of a row in one pass: the largest value so far and the sum of exponentials relative to it.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/rows.cuh"

namespace plimsoll::kernels::cuda {

inline constexpr float kLog2E = 1.44269504f;

// 2^x by the hardware, good to two units in the last place.
__device__ __forceinline__ float power_of_two(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// e^x for the x <= 0 of a softmax.
__device__ __forceinline__ float exp_below(float x) { return power_of_two(x * kLog2E); }

// The larger; a NaN stays.
__device__ __forceinline__ float larger_of(float a, float b) { return b > a || b != b ? b : a; }

struct SoftmaxSum {
  float top = -INFINITY;
  float sum = 0.0f;  // of e^(x - top)

  // Values of -infinity add nothing, so that they can stand for values that are not there. A NaN is not the largest, but makes the sum
  // one.
  template <int kCount>
  __device__ __forceinline__ void add(const float (&x)[kCount]) {
    float highest = top;
#pragma unroll
    for (int i = 0; i < kCount; ++i) highest = fmaxf(highest, x[i]);
    const float base = highest == -INFINITY ? 0.0f : highest * kLog2E;
    sum *= power_of_two(fmaf(top, kLog2E, -base));
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += power_of_two(fmaf(x[i], kLog2E, -base));
    top = highest;
  }

  __device__ __forceinline__ void merge(const SoftmaxSum& other) {
    const float highest = fmaxf(top, other.top);
    const float base = highest == -INFINITY ? 0.0f : highest;
    sum = sum * exp_below(top - base) + other.sum * exp_below(other.top - base);
    top = highest;
  }

  // Infinite where the largest value is, NaN where there was one.
  __device__ __forceinline__ float log_sum_exp() const { return isinf(top) && !isnan(sum) ? top : top + logf(sum); }
};

// Over the block; the first thread has the result. `shared` has one for each warp.
template <int kThreads>
__device__ __forceinline__ SoftmaxSum block_softmax_sum(SoftmaxSum own, SoftmaxSum* shared) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    SoftmaxSum other;
    other.top = __shfl_down_sync(kAllLanes, own.top, apart);
    other.sum = __shfl_down_sync(kAllLanes, own.sum, apart);
    own.merge(other);
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / kWarp; ++warp) own.merge(shared[warp]);
  }
  return own;
}

}  // namespace plimsoll::kernels::cuda

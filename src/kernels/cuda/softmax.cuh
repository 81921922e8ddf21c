// Log-sum-exp of a row in one pass: the largest value so far and the sum of exponentials relative to it.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/rows.cuh"

namespace plimsoll::kernels::cuda {

// e^x by the hardware's power of two, good to two units in the last place for the x <= 0 of a softmax.
__device__ __forceinline__ float exp_below(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
  return power;
}

// The larger; a NaN stays.
__device__ __forceinline__ float larger_of(float a, float b) { return b > a || b != b ? b : a; }

struct SoftmaxSum {
  float top = -INFINITY;
  float sum = 0.0f;  // of e^(x - top)

  template <int kCount>
  __device__ __forceinline__ void add(const float (&x)[kCount], int count) {
    float highest = top;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < count) highest = larger_of(highest, x[i]);
    }
    if (highest == -INFINITY) return;  // nothing yet that counts
    sum *= exp_below(top - highest);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < count) sum += exp_below(x[i] - highest);
    }
    top = highest;
  }

  __device__ __forceinline__ void merge(const SoftmaxSum& other) {
    const float highest = larger_of(top, other.top);
    if (highest == -INFINITY) return;
    sum = sum * exp_below(top - highest) + other.sum * exp_below(other.top - highest);
    top = highest;
  }

  // Infinite or NaN where the largest value is.
  __device__ __forceinline__ float log_sum_exp() const { return isfinite(top) ? top + logf(sum) : top; }
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

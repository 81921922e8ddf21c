// Element types on the device, and how a launcher picks a kernel by them. Arithmetic is in f32: kernels widen what they
// read and round once, to nearest even, what they write.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/cuda/checks.h"

namespace plimsoll::kernels::cuda {

__device__ __forceinline__ float to_f32(float value) { return value; }
__device__ __forceinline__ float to_f32(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_f32(__half value) { return __half2float(value); }

template <typename T>
__device__ __forceinline__ T from_f32(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return __float2half_rn(value);
  }
}

inline bool is_element(base::DType dtype) { return dtype == base::DType::f32 || dtype == base::DType::bf16 || dtype == base::DType::f16; }

// use(T{}) with the type of the element. Stops on types that no kernel computes in: refusals come before.
template <typename Use>
void with_element(base::DType dtype, Use&& use) {
  switch (dtype) {
    case base::DType::f32: use(float{}); return;
    case base::DType::bf16: use(__nv_bfloat16{}); return;
    case base::DType::f16: use(__half{}); return;
    default: stop_on_element(dtype);
  }
}

inline unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

// Whole numbers: the order of additions does not matter.
__device__ __forceinline__ void add_whole(std::int64_t* to, std::int64_t value) {
  if (value != 0) atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

}  // namespace plimsoll::kernels::cuda

// The one thing nvcc compiles, behind a plain function: nvcc sees neither C++20 headers nor fmt.
#pragma once

#include <cuda_runtime.h>

namespace plimsoll::collectives::nccl {

enum class FoldType : int { f32, bf16, f16, i32, i64, u8 };
enum class FoldRule : int { sum, mean, max };

cudaError_t launch_fold(FoldType type, FoldRule rule, const void* const* in, int inputs, void* out, long long count, float inverse,
                        cudaStream_t stream);

}  // namespace plimsoll::collectives::nccl

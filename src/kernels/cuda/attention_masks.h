// What cuDNN's attention is told of segments, which it has no form for: scores that do not count as a large negative number added to them,
// a tensor in a kernel's workspace.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cuda/kernel.h"

namespace plimsoll::kernels::cuda {

struct MaskedRows {
  std::int64_t batch = 0;
  std::int64_t length = 0;
  std::int64_t window = 0;                 // 0: none
  const std::int32_t* segments = nullptr;  // null: all one
};

// (batch, 1, length, length): 0 where a query sees a key. Keys after a causal query are left to the library's own mask, but have a number.
void launch_score_bias(const MaskedRows& rows, base::DType dtype, void* bias, cudaStream_t stream);

// Queries without a segment see nothing: zeros in out (batch, length, width), -infinity in stats (batch, heads, length).
void launch_blank_rows(const MaskedRows& rows, std::int64_t heads, const Tensor& out, float* stats, cudaStream_t stream);

// Stats (batch, heads, length) for the backward pass, those of each run of heads together: (runs, batch, heads / runs, length). Queries
// without a segment have such that they have no probabilities.
void launch_stats_of_runs(const MaskedRows& rows, std::int64_t heads, std::int64_t runs, const float* stats, float* of_runs,
                          cudaStream_t stream);

}  // namespace plimsoll::kernels::cuda

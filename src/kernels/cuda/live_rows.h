// Tensors of which only the first rows hold anything (graph/live_rows.h), on the device.
//
// A launch is captured before anybody knows how many rows there will be, so kernels are launched for all that there is room for. Rows
// behind the last live one are made zeros ahead of a kernel that reads them. Operators with bounded rows work row by row: what they make of
// such rows nobody reads, and to a sum over rows they add nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "kernels/cuda/kernel.h"

namespace plimsoll::kernels::cuda {

// Each tensor has `bound` rows, of which the first `*count` hold something; `count` is on the device.
void clear_dead_rows(std::span<const Tensor> tensors, const std::int32_t* count, std::int64_t bound, cudaStream_t stream);

}  // namespace plimsoll::kernels::cuda

// collectives::fold on a device: the same left fold in f32 with one rounding at the end, so the same bits.
#pragma once

#include <cuda_runtime.h>

#include "collectives/fold.h"

namespace plimsoll::collectives::nccl {

inline constexpr int kMostFolded = 1024;  // members of a canonical sum

// All pointers are device memory; there is one output. `in` is copied to `pointers`, device memory for as many.
void device_fold(const Fold& work, const std::byte** pointers, cudaStream_t stream);

}  // namespace plimsoll::collectives::nccl

// Looking for numbers that are not finite, on the device; executor/core/not_finite.h says which they are.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "base/shape.h"

namespace plimsoll::kernels::cuda {

// Waits for the stream.
bool all_finite(const std::byte* data, const base::TensorType& type, cudaStream_t stream);

}  // namespace plimsoll::kernels::cuda

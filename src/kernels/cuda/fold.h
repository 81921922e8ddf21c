// The canonical sum over ranks on the device: element by element a left fold in rank order, in f32, rounded once at the end. The bits
// are those of collectives/fold.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/dtype.h"

namespace plimsoll::kernels::cuda {

inline constexpr int kMostFolded = 16;

struct Fold {
  const void* in[kMostFolded] = {};  // one for each member, in order
  void* out[kMostFolded] = {};       // each gets the result; they may be those of `in`
  int inputs = 0;
  int outputs = 0;
  std::int64_t count = 0;                // elements
  base::DType dtype = base::DType::f32;  // f32, bf16 or f16
};

void launch_fold(const Fold& fold, cudaStream_t stream);

}  // namespace plimsoll::kernels::cuda

#include "kernels/cuda/machine_code.h"

#include <cuda_runtime.h>

namespace plimsoll::kernels::cuda {

namespace {

// All files are built for the same GPUs, so one kernel stands for all.
__global__ void any_kernel() {}

}  // namespace

bool has_machine_code() {
  cudaFuncAttributes attributes{};
  const bool has = cudaFuncGetAttributes(&attributes, any_kernel) == cudaSuccess;
  cudaGetLastError();  // it would show up again at the next launch
  return has;
}

std::vector<int> built_for() { return {__CUDA_ARCH_LIST__}; }

}  // namespace plimsoll::kernels::cuda

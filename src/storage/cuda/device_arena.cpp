#include "storage/cuda/device_arena.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "base/error.h"

namespace plimsoll::storage {

DeviceArena::DeviceArena(base::Bytes size) : size_(size) {
  std::size_t free = 0;
  std::size_t total = 0;
  cudaMemGetInfo(&free, &total);
  void* memory = nullptr;
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(size.count, 1));
  const cudaError_t taken = cudaMalloc(&memory, wanted);
  if (taken != cudaSuccess) {
    cudaGetLastError();  // it would show up again at the next launch
    base::bad_input(
        "the plan needs {} of device memory, and the GPU did not give it ({}): {} of its {} are free, other processes hold {}; end "
        "them (nvidia-smi lists them), choose another GPU with CUDA_VISIBLE_DEVICES, or use a smaller \"batch.micro\"",
        base::to_string(size), cudaGetErrorString(taken), base::to_string(base::Bytes{static_cast<std::int64_t>(free)}),
        base::to_string(base::Bytes{static_cast<std::int64_t>(total)}),
        base::to_string(base::Bytes{static_cast<std::int64_t>(total - free)}));
  }
  memory_ = static_cast<std::byte*>(memory);
  cudaMemset(memory_, 0, wanted);
}

DeviceArena::~DeviceArena() { cudaFree(memory_); }

}  // namespace plimsoll::storage

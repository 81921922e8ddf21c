#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/not_finite.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr unsigned kMostBlocks = 1024;

template <typename T>
__global__ void __launch_bounds__(kThreads) find_not_finite(const T* data, std::int64_t count, int* found) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; index < count; index += stride) {
    if (!(to_f32(data[index]) < INFINITY)) *found = 1;
  }
}

}  // namespace

bool all_finite(const std::byte* data, const base::TensorType& type, cudaStream_t stream) {
  const std::int64_t count = type.shape.elements();
  if (!is_element(type.dtype) || count == 0) return true;
  int* found = nullptr;  // pinned, so that the device writes into it and the host reads it when the stream is done
  check(cudaMallocHost(&found, sizeof *found), "memory for a look at a tensor");
  *found = 0;
  with_element(type.dtype, [&](auto element) {
    using T = decltype(element);
    find_not_finite<<<std::min(blocks_for(count, kThreads), kMostBlocks), kThreads, 0, stream>>>(reinterpret_cast<const T*>(data), count,
                                                                                                 found);
  });
  check_launch("find_not_finite");
  check(cudaStreamSynchronize(stream), "a look at a tensor");
  const bool finite = *found == 0;
  check(cudaFreeHost(found), "memory for a look at a tensor");
  return finite;
}

}  // namespace plimsoll::kernels::cuda

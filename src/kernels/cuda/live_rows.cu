#include "kernels/cuda/live_rows.h"

#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/elements.cuh"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr unsigned kMostBlocks = 1024;
constexpr std::int64_t kWord = sizeof(uint4);
constexpr int kMostTensors = 8;  // of a launch

struct Rows {
  std::uint8_t* data = nullptr;
  std::int64_t bytes = 0;  // of a row
};

struct DeadRows {
  const std::int32_t* count = nullptr;
  std::int64_t bound = 0;
  Rows tensors[kMostTensors];
};

// Whole words, and single bytes before the first and behind the last of them.
__global__ void __launch_bounds__(kThreads) clear_rows(const __grid_constant__ DeadRows dead) {
  const std::int64_t live = max(std::int64_t{0}, min(static_cast<std::int64_t>(*dead.count), dead.bound));
  const Rows rows = dead.tensors[blockIdx.y];
  std::uint8_t* const begin = rows.data + live * rows.bytes;
  std::uint8_t* const end = rows.data + dead.bound * rows.bytes;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) % kWord);
  const std::int64_t head = min(past == 0 ? std::int64_t{0} : kWord - past, static_cast<std::int64_t>(end - begin));
  const std::int64_t words = (end - begin - head) / kWord;
  if (thread < head) begin[thread] = 0;
  auto* const word = reinterpret_cast<uint4*>(begin + head);
  for (std::int64_t index = thread; index < words; index += threads) word[index] = make_uint4(0, 0, 0, 0);
  std::uint8_t* const tail = begin + head + words * kWord;
  if (thread < end - tail) tail[thread] = 0;
}

}  // namespace

void clear_dead_rows(std::span<const Tensor> tensors, const std::int32_t* count, std::int64_t bound, cudaStream_t stream) {
  while (!tensors.empty()) {
    const std::span<const Tensor> now = tensors.first(std::min<std::size_t>(tensors.size(), kMostTensors));
    tensors = tensors.subspan(now.size());
    DeadRows dead{.count = count, .bound = bound};
    std::int64_t most = 0;
    for (std::size_t index = 0; index < now.size(); ++index) {
      dead.tensors[index] = {now[index].as<std::uint8_t>(), now[index].type.bytes() / bound};
      most = std::max(most, now[index].type.bytes());
    }
    if (most == 0) continue;
    const dim3 grid(std::min(blocks_for(most / kWord + 1, kThreads), kMostBlocks), static_cast<unsigned>(now.size()));
    clear_rows<<<grid, kThreads, 0, stream>>>(dead);
    check_launch("clear_rows");
  }
}

}  // namespace plimsoll::kernels::cuda

#include "storage/cuda/pinned_arena.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/error.h"

namespace plimsoll::storage {

namespace {

// The system gives pages when they are first touched, and pinning would touch them one by one on this thread.
void touch(std::byte* memory, std::int64_t size) {
  constexpr std::int64_t kPage = 4096;
  constexpr std::int64_t kLargePage = std::int64_t{2} << 20;
  const std::int64_t threads = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  const std::int64_t part = (size / threads + kLargePage) / kLargePage * kLargePage;
  std::vector<std::jthread> touching;
  for (std::int64_t first = 0; first < size; first += part) {
    touching.emplace_back([=] {
      for (std::int64_t at = first; at < std::min(first + part, size); at += kPage)
        *const_cast<volatile std::byte*>(memory + at) = std::byte{0};
    });
  }
}

}  // namespace

PinnedArena::PinnedArena(base::Bytes size) : memory_(size) {
  if (size.count == 0) return;
  touch(memory_.at({}), size.count);
  const cudaError_t pinned = cudaHostRegister(memory_.at({}), static_cast<std::size_t>(size.count), cudaHostRegisterDefault);
  if (pinned == cudaSuccess) return;
  cudaGetLastError();  // it would show up again at the next launch
  base::not_legal(
      "the plan keeps {} in the host's memory, and the system did not pin so much ({}); raise the limit on locked memory (ulimit -l), "
      "free memory, or keep more on the device (\"offload\")",
      base::to_string(size), cudaGetErrorString(pinned));
}

PinnedArena::~PinnedArena() {
  if (size().count > 0) cudaHostUnregister(memory_.at({}));
}

}  // namespace plimsoll::storage

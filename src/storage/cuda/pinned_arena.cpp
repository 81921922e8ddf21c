#include "storage/cuda/pinned_arena.h"

#include <cuda_runtime.h>

#include "base/error.h"

namespace plimsoll::storage {

PinnedArena::PinnedArena(base::Bytes size) : memory_(size) {
  if (size.count == 0) return;
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

// Owners of what the CUDA runtime hands out.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/checks.h"

namespace plimsoll::executor {

template <typename Handle, cudaError_t (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

inline Stream make_stream() {
  cudaStream_t stream = nullptr;
  kernels::cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return Stream(stream);
}

// A host that waits for one gives its core to others: the threads that update optimizer state may need it.
inline Event make_event(bool timed = false) {
  cudaEvent_t event = nullptr;
  const unsigned int flags = timed ? cudaEventDefault : cudaEventDisableTiming | cudaEventBlockingSync;
  kernels::cuda::check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreate");
  return Event(event);
}

}  // namespace plimsoll::executor

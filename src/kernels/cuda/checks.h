// Every call of the CUDA runtime goes through one of these. Messages are made in checks.cpp: .cu files compile slowly enough.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "base/dtype.h"

namespace plimsoll::kernels::cuda {

// peer_lost with the operation and CUDA's words: what fails here is a device that went away or a kernel that broke it.
[[noreturn]] void fail_cuda(cudaError_t code, std::string_view what);

inline void check(cudaError_t code, std::string_view what) {
  if (code != cudaSuccess) [[unlikely]]
    fail_cuda(code, what);
}

// A kernel was launched on an element type that it should have refused.
[[noreturn]] void stop_on_element(base::DType dtype);

// After every launch: a configuration that the device does not take shows here and nowhere else.
inline void check_launch(std::string_view kernel) { check(cudaGetLastError(), kernel); }

}  // namespace plimsoll::kernels::cuda

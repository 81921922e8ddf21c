// The GPUs of this machine as a backend. It is a module of its own (libplimsoll_cuda.so), loaded when somebody asks: a
// program without it, or on a machine without CUDA, starts and says what is missing.
#pragma once

#include <optional>
#include <string>

#include "executor/core/backend.h"

namespace plimsoll::executor {

// Why there is none: built without it, a library that it needs is not installed. nullopt: cuda_backend() gives it.
// A machine without a GPU can have it all the same, to plan with.
std::optional<std::string> why_no_cuda();

// Whether the machine has NVIDIA's driver. Without it there is no need to load the module, whose libraries take 150 MB.
bool has_cuda_driver();

// bad_input with the reason where there is none.
const Backend& cuda_backend();

// What the module shows: extern "C" const Backend* plimsoll_cuda_backend().
using CudaEntry = const Backend* (*)();
inline constexpr const char* kCudaEntry = "plimsoll_cuda_backend";

}  // namespace plimsoll::executor

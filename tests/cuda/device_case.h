// Runs one CUDA kernel on one case the way the executor would, and checks what every kernel owes: operands at 64-byte
// boundaries between guard bytes, outputs and scratch full of NaN beforehand, no write outside outputs and scratch.
#pragma once

#include <vector>

#include "kernels/cuda/kernel.h"
#include "ops/cases.h"
#include "ops/run_case.h"

namespace plimsoll::op_cases {

// Device memory that cases are laid out in, one after the other.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_;
};

struct DeviceRunOptions {
  bool share = false;  // outputs lie on inputs also where the operator only allows it
  bool deterministic = true;
};

// The outputs; broken promises are reported as test failures.
std::vector<Bytes> run_on_device(const kernels::cuda::Kernel& kernel, const Case& test, const std::vector<Bytes>& inputs,
                                 const DeviceMemory& memory, const DeviceRunOptions& options);

}  // namespace plimsoll::op_cases

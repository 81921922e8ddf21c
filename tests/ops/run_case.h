// Runs one kernel on one case the way a careful executor would, and checks what every kernel owes: operands at 64-byte
// boundaries between guard bytes, outputs and scratch full of NaN beforehand, no write outside outputs and scratch.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cpu/kernel.h"
#include "kernels/cpu/reference/tensor.h"
#include "ops/cases.h"

namespace plimsoll::op_cases {

using Bytes = std::vector<std::byte>;

// 64-byte aligned memory between guards.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::int64_t bytes);  // full of NaN
  std::byte* data() { return start_ + kGuard; }
  std::int64_t bytes() const { return bytes_; }
  bool intact() const;

 private:
  static constexpr std::int64_t kGuard = 256;
  std::int64_t bytes_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* start_;
};

// The values as they lie in memory.
Bytes encode(const kernels::cpu::reference::RefValue& value, const base::TensorType& type);
kernels::cpu::reference::RefValue decode(const Bytes& bytes, const base::TensorType& type);

struct RunOptions {
  int threads = 1;
  bool share = false;  // outputs lie on inputs also where the operator only allows it
};

// The outputs; broken promises are reported as test failures.
std::vector<Bytes> run_case(const kernels::cpu::Kernel& kernel, const Case& test, const std::vector<Bytes>& inputs,
                            const RunOptions& options);

// Whether some output may, but need not, lie on an input.
bool can_share(const ops::Op& op);

}  // namespace plimsoll::op_cases

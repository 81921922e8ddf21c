// What the host's processor computes beside the GPU: the update of optimizer state that lies in the host's memory.
//
// A call is put on a CUDA stream like any other work: CUDA runs it on a thread of its own when what stands before it on the stream is
// done, and the stream goes on when it is. So it can be captured in a graph, and nobody waits for the device. Such a thread may not
// call CUDA, and an error cannot leave it: it is kept until the program is over, and calls after it do nothing.
#pragma once

#include <cuda_runtime.h>

#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "kernels/cpu/kernel.h"
#include "plan/plan.h"

namespace plimsoll::executor {

// The first error of a program's host calls.
class HostErrors {
 public:
  void keep(std::exception_ptr error);
  bool any() const;
  // Throws it, once.
  void rethrow();

 private:
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

// A kernel of the host with what it settled beforehand.
struct HostInstruction {
  const plan::Compute* compute = nullptr;
  const kernels::cpu::Kernel* kernel = nullptr;
  kernels::cpu::Prepared prepared;
};

HostInstruction prepare_on_host(const plan::Compute& compute, int threads);

// A call of a program with its memory. It stays where it is: streams and graphs hold its address.
class HostCall {
 public:
  struct Instruction {
    const HostInstruction* what = nullptr;
    std::vector<kernels::cpu::Tensor> inputs;
    std::vector<kernels::cpu::Tensor> outputs;
    std::byte* workspace = nullptr;
  };

  HostCall(std::vector<Instruction> instructions, int threads, std::int64_t shard_place, HostErrors& errors, std::function<void()> before)
      : instructions_(std::move(instructions)), threads_(threads), shard_place_(shard_place), errors_(errors), before_(std::move(before)) {}
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  void launch(cudaStream_t stream);

 private:
  void run();

  std::vector<Instruction> instructions_;
  int threads_;
  std::int64_t shard_place_;
  HostErrors& errors_;
  std::function<void()> before_;
};

}  // namespace plimsoll::executor

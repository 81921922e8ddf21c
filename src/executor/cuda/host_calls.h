// What the host does beside the GPU: the update of optimizer state that lies in its memory, and copies to and from a drive.
//
// A call is put on a CUDA stream like any other work: CUDA runs it on a thread of its own when what stands before it on the stream is
// done, and the stream goes on when it is. So it can be captured in a graph, and nobody waits for the device. Such a thread may not
// call CUDA, and an error cannot leave it: it is kept until the program is over, and calls after it do nothing. CUDA has one such
// thread, so this is for programs in which one stream is the host's; where there are more, each has a thread that waits for the device
// and calls run_here.
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

// The kernels of a call with their memory.
class HostKernels {
 public:
  HostKernels(int threads, std::int64_t shard_place) : threads_(threads), shard_place_(shard_place) {}

  void add(const HostInstruction& instruction, std::vector<kernels::cpu::Tensor> inputs, std::vector<kernels::cpu::Tensor> outputs,
           std::byte* workspace);
  void run() const;

 private:
  struct Step {
    const HostInstruction* what = nullptr;
    std::vector<kernels::cpu::Tensor> inputs;
    std::vector<kernels::cpu::Tensor> outputs;
    std::byte* workspace = nullptr;
  };

  std::vector<Step> steps_;
  int threads_;
  std::int64_t shard_place_;
};

// A call of a program. It stays where it is: streams and graphs hold its address.
class HostCall {
 public:
  HostCall(std::function<void()> work, HostErrors& errors) : work_(std::move(work)), errors_(errors) {}
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  void launch(cudaStream_t stream);
  void run_here() const { work_(); }

 private:
  void run_guarded() const;

  std::function<void()> work_;
  HostErrors& errors_;
};

}  // namespace plimsoll::executor

#include "executor/cuda/host_calls.h"

#include <utility>

#include "kernels/cpu/table.h"
#include "kernels/cuda/checks.h"

namespace plimsoll::executor {

namespace cpu = kernels::cpu;

void HostErrors::keep(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

bool HostErrors::any() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void HostErrors::rethrow() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

HostInstruction prepare_on_host(const plan::Compute& compute, int threads) {
  std::vector<base::TensorType> inputs;
  std::vector<base::TensorType> outputs;
  for (const plan::Operand& operand : compute.inputs) inputs.push_back(operand.type);
  for (const plan::Operand& operand : compute.outputs) outputs.push_back(operand.type);
  const cpu::Kernel& kernel = cpu::kernel_named(compute.kernel);
  const ops::KernelQuery query{.op = compute.op, .inputs = inputs, .outputs = outputs, .threads = threads, .tier = ops::Tier::host};
  return {&compute, &kernel, kernel.prepare != nullptr ? kernel.prepare(query) : nullptr};
}

void HostCall::launch(cudaStream_t stream) {
  const auto start = [](void* call) { static_cast<HostCall*>(call)->run(); };
  kernels::cuda::check(cudaLaunchHostFunc(stream, start, this), "cudaLaunchHostFunc");
}

void HostCall::run() {
  if (errors_.any()) return;
  try {
    before_();
    for (const Instruction& instruction : instructions_) {
      instruction.what->kernel->run({.op = instruction.what->compute->op,
                                     .inputs = instruction.inputs,
                                     .outputs = instruction.outputs,
                                     .workspace = instruction.workspace,
                                     .threads = threads_,
                                     .prepared = instruction.what->prepared.get(),
                                     .shard_place = shard_place_});
    }
  } catch (...) {
    errors_.keep(std::current_exception());
  }
}

}  // namespace plimsoll::executor

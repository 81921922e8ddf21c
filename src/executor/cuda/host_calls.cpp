#include "executor/cuda/host_calls.h"

#include <utility>

#include "kernels/cpu/table.h"
#include "kernels/cuda/checks.h"
#include "ops/op.h"

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

void HostKernels::add(const HostInstruction& instruction, std::vector<cpu::Tensor> inputs, std::vector<cpu::Tensor> outputs,
                      std::byte* workspace) {
  steps_.push_back({&instruction, std::move(inputs), std::move(outputs), workspace});
}

void HostKernels::run() const {
  for (const Step& step : steps_) {
    const cpu::Call call{.op = step.what->compute->op,
                         .inputs = step.inputs,
                         .outputs = step.outputs,
                         .workspace = step.workspace,
                         .threads = threads_,
                         .prepared = step.what->prepared.get(),
                         .shard_place = shard_place_};
    step.what->kernel->run(call);
  }
}

void HostCall::launch(cudaStream_t stream) {
  const auto start = [](void* call) { static_cast<HostCall*>(call)->run_guarded(); };
  kernels::cuda::check(cudaLaunchHostFunc(stream, start, this), "cudaLaunchHostFunc");
}

void HostCall::run_guarded() const {
  if (errors_.any()) return;
  try {
    work_();
  } catch (...) {
    errors_.keep(std::current_exception());
  }
}

}  // namespace plimsoll::executor

#include "executor/cpu/cpu_executor.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "kernels/cpu/table.h"
#include "storage/host_arena.h"

namespace plimsoll::executor {

namespace {

namespace cpu = kernels::cpu;

constexpr std::size_t kMaxOperands = 16;

struct PreparedInstruction {
  const plan::Compute* compute = nullptr;
  const cpu::Kernel* kernel = nullptr;
  cpu::Prepared prepared;
};

struct ResolvedCall {
  const plan::Call* call = nullptr;
  std::vector<std::byte*> slots;
  std::byte* frame = nullptr;
};

std::vector<base::TensorType> types_of(const std::vector<plan::Operand>& operands) {
  std::vector<base::TensorType> types;
  for (const plan::Operand& operand : operands) types.push_back(operand.type);
  return types;
}

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

const plan::RankClass& class_of(const plan::Plan& plan, std::int32_t rank) {
  for (const plan::RankClass& candidate : plan.classes) {
    if (std::find(candidate.ranks.begin(), candidate.ranks.end(), rank) != candidate.ranks.end()) return candidate;
  }
  PLIMSOLL_CHECK(false, "rank {} is in no class of the plan", rank);
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const plan::Plan& plan, std::int32_t rank)
      : plan_(plan), class_(class_of(plan, rank)), arena_(class_.arena[static_cast<std::size_t>(plan::Tier::device)]) {
    for (const plan::Procedure& procedure : plan_.procedures) procedures_.push_back(prepare(procedure));
    for (const plan::Program& program : class_.programs) programs_.push_back(resolve(program));
  }

  void run(std::string_view name, Timeline* timeline) override {
    for (std::size_t index = 0; index < class_.programs.size(); ++index) {
      if (class_.programs[index].name != name) continue;
      const double start = seconds_now();
      for (const ResolvedCall& call : programs_[index]) run_call(call, start, timeline);
      return;
    }
    PLIMSOLL_CHECK(false, "the plan has no program {}", name);
  }

  std::byte* host_view(plan::BufferId buffer) override { return arena_.at(class_.buffers[buffer].offset); }
  const plan::RankClass& rank_class() const override { return class_; }

 private:
  std::vector<PreparedInstruction> prepare(const plan::Procedure& procedure) const {
    std::vector<PreparedInstruction> prepared;
    for (const plan::Instruction& instruction : procedure.instructions) {
      const auto& compute = std::get<plan::Compute>(instruction);
      PLIMSOLL_CHECK(compute.inputs.size() <= kMaxOperands && compute.outputs.size() <= kMaxOperands, "{} has too many operands",
                     compute.kernel);
      const cpu::Kernel& kernel = cpu::kernel_named(compute.kernel);
      const std::vector<base::TensorType> inputs = types_of(compute.inputs);
      const std::vector<base::TensorType> outputs = types_of(compute.outputs);
      const ops::KernelQuery query{.op = compute.op, .inputs = inputs, .outputs = outputs, .threads = plan_.threads};
      prepared.push_back({&compute, &kernel, kernel.prepare != nullptr ? kernel.prepare(query) : nullptr});
    }
    return prepared;
  }

  std::vector<ResolvedCall> resolve(const plan::Program& program) {
    PLIMSOLL_CHECK(program.streams.size() == 1, "the CPU executor runs one stream; the program {} has {}", program.name,
                   program.streams.size());
    std::vector<ResolvedCall> resolved;
    for (const plan::Call& call : program.streams[0].calls) {
      ResolvedCall next{&call, {}, call.frame.valid() ? host_view(call.frame) : nullptr};
      for (plan::BufferId id : call.bindings) next.slots.push_back(host_view(id));
      resolved.push_back(std::move(next));
    }
    return resolved;
  }

  void run_call(const ResolvedCall& resolved, double start, Timeline* timeline) {
    const double begin = timeline != nullptr ? seconds_now() : 0.0;
    const plan::Procedure& procedure = plan_.procedures[resolved.call->procedure];
    for (const PreparedInstruction& instruction : procedures_[resolved.call->procedure.index]) {
      const double instruction_begin = timeline != nullptr ? seconds_now() : 0.0;
      run_instruction(procedure, resolved, instruction);
      if (timeline != nullptr) {
        timeline->events.push_back({std::string(ops::name_of(instruction.compute->op)), instruction.compute->kernel, 0,
                                    resolved.call->micro_batch, instruction_begin - start, seconds_now() - start});
      }
    }
    if (timeline != nullptr)
      timeline->events.push_back({resolved.call->label, "", 0, resolved.call->micro_batch, begin - start, seconds_now() - start});
  }

  void run_instruction(const plan::Procedure& procedure, const ResolvedCall& resolved, const PreparedInstruction& instruction) {
    const plan::Compute& compute = *instruction.compute;
    std::array<cpu::Tensor, kMaxOperands> inputs;
    std::array<cpu::Tensor, kMaxOperands> outputs;
    const auto address = [&](const plan::Operand& operand) {
      return operand.kind == plan::Operand::Kind::slot ? resolved.slots[operand.index]
                                                       : resolved.frame + procedure.temporaries[operand.index].offset.count;
    };
    for (std::size_t index = 0; index < compute.inputs.size(); ++index)
      inputs[index] = {address(compute.inputs[index]), compute.inputs[index].type};
    for (std::size_t index = 0; index < compute.outputs.size(); ++index)
      outputs[index] = {address(compute.outputs[index]), compute.outputs[index].type};
    instruction.kernel->run({.op = compute.op,
                             .inputs = std::span(inputs.data(), compute.inputs.size()),
                             .outputs = std::span(outputs.data(), compute.outputs.size()),
                             .workspace = compute.workspace.count > 0 ? resolved.frame + compute.workspace_offset.count : nullptr,
                             .threads = plan_.threads,
                             .prepared = instruction.prepared.get()});
  }

  const plan::Plan& plan_;
  const plan::RankClass& class_;
  storage::HostArena arena_;
  std::vector<std::vector<PreparedInstruction>> procedures_;
  std::vector<std::vector<ResolvedCall>> programs_;
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(const plan::Plan& plan, std::int32_t rank) { return std::make_unique<CpuExecutor>(plan, rank); }

}  // namespace plimsoll::executor

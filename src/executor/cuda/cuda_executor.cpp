#include "executor/cuda/cuda_executor.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "executor/cuda/device.h"
#include "executor/cuda/handles.h"
#include "executor/cuda/host_mirror.h"
#include "executor/cuda/staged_collectives.h"
#include "kernels/cuda/table.h"
#include "storage/cuda/device_arena.h"

namespace plimsoll::executor {

namespace {

namespace cuda = kernels::cuda;
using cuda::check;

constexpr std::size_t kMaxOperands = 16;

// A kernel with what it settled beforehand, or a collective.
struct PreparedInstruction {
  const plan::Compute* compute = nullptr;
  const cuda::Kernel* kernel = nullptr;
  cuda::Prepared prepared;
  const plan::Collective* collective = nullptr;
  std::string name;    // for timelines
  std::string detail;  // the kernel
};

struct ResolvedCall {
  const plan::Call* call = nullptr;
  std::size_t stream = 0;
  std::vector<std::byte*> slots;
  std::byte* frame = nullptr;
};

struct ResolvedProgram {
  const plan::Program* program = nullptr;
  std::vector<ResolvedCall> calls;  // of all streams, by moment: whoever waits for a token comes after whoever gives it
  std::vector<Event> tokens;
  std::vector<Event> joins;  // one for each stream: the ends meet on the first
  bool capturable = true;
  std::int64_t runs = 0;
  Graph graph;
};

std::vector<base::TensorType> types_of(const std::vector<plan::Operand>& operands) {
  std::vector<base::TensorType> types;
  for (const plan::Operand& operand : operands) types.push_back(operand.type);
  return types;
}

// Device times of calls and instructions, by events around each.
class Recorder {
 public:
  struct Mark {
    std::string name;
    std::string detail;
    std::size_t stream;
    std::int32_t micro_batch;
    Event begin;
    Event end;
  };

  void start(cudaStream_t stream) {
    start_ = make_event(true);
    check(cudaEventRecord(start_.get(), stream), "cudaEventRecord");
  }
  Event now(cudaStream_t stream) {
    Event event = make_event(true);
    check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
    return event;
  }
  void note(Mark mark) { marks_.push_back(std::move(mark)); }

  // After everything has run.
  void write(Timeline& timeline) const {
    const auto seconds = [&](const Event& event) {
      float milliseconds = 0.0f;
      check(cudaEventElapsedTime(&milliseconds, start_.get(), event.get()), "cudaEventElapsedTime");
      return static_cast<double>(milliseconds) * 1e-3;
    };
    for (const Mark& mark : marks_) {
      timeline.events.push_back(
          {mark.name, mark.detail, static_cast<std::int32_t>(mark.stream), mark.micro_batch, seconds(mark.begin), seconds(mark.end)});
    }
  }

 private:
  Event start_;
  std::vector<Mark> marks_;
};

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(const plan::Plan& plan, std::int32_t rank, collectives::Transport* transport)
      : plan_(plan),
        class_(plan::class_of(plan, rank)),
        shard_place_(plan.mesh.place(ops::Axis::data_inner, rank)),
        device_(use_gpu(rank)),
        arena_(class_.arena[static_cast<std::size_t>(plan::Tier::device)]),
        mirror_(class_, arena_),
        collectives_(plan, rank, device_, transport) {
    for (const plan::Procedure& procedure : plan_.procedures) procedures_.push_back(prepare(procedure));
    for (const plan::Program& program : class_.programs) programs_.push_back(resolve(program));
    check(cudaDeviceSynchronize(), "preparing the plan");
  }

  void run(std::string_view name, Timeline* timeline) override {
    check(cudaSetDevice(device_), "cudaSetDevice");
    for (ResolvedProgram& program : programs_) {
      if (program.program->name == name) return run_program(program, timeline);
    }
    PLIMSOLL_CHECK(false, "the plan has no program {}", name);
  }

  std::byte* host_view(plan::BufferId buffer, plan::Access access) override {
    check(cudaSetDevice(device_), "cudaSetDevice");
    return mirror_.view(buffer, access);
  }
  const plan::RankClass& rank_class() const override { return class_; }
  std::int64_t data_place() const override { return shard_place_; }

 private:
  std::vector<PreparedInstruction> prepare(const plan::Procedure& procedure) const {
    std::vector<PreparedInstruction> prepared;
    for (const plan::Instruction& instruction : procedure.instructions) {
      PreparedInstruction next;
      if (const auto* collective = std::get_if<plan::Collective>(&instruction)) {
        next.collective = collective;
        next.name = std::string(ops::name_of(collective->op.kind));
        next.detail = fmt::format("{}.{}", next.name, ops::name_of(collective->op.axis));
      } else if (const auto* compute = std::get_if<plan::Compute>(&instruction)) {
        prepare(*compute, next);
      } else {
        const bool message = std::holds_alternative<plan::Message>(instruction);
        base::not_legal(
            "{}: on a GPU this plan would have to move data {}, which can be done on the processor only; use {} or \"device\": \"cpu\"",
            procedure.name, message ? "between pipeline stages" : "between memory tiers",
            message ? "\"pipe\": 1" : "\"offload.optimizer\": \"none\"");
      }
      prepared.push_back(std::move(next));
    }
    return prepared;
  }

  static void prepare(const plan::Compute& compute, PreparedInstruction& next) {
    PLIMSOLL_CHECK(compute.inputs.size() <= kMaxOperands && compute.outputs.size() <= kMaxOperands, "{} has too many operands",
                   compute.kernel);
    const std::vector<base::TensorType> inputs = types_of(compute.inputs);
    const std::vector<base::TensorType> outputs = types_of(compute.outputs);
    next.compute = &compute;
    next.kernel = &cuda::kernel_named(compute.kernel);
    next.prepared =
        next.kernel->prepare != nullptr ? next.kernel->prepare({.op = compute.op, .inputs = inputs, .outputs = outputs}) : nullptr;
    next.name = std::string(ops::name_of(compute.op));
    next.detail = compute.kernel;
  }

  ResolvedProgram resolve(const plan::Program& program) {
    ResolvedProgram resolved;
    resolved.program = &program;
    const auto address = [&](plan::BufferId buffer) { return arena_.at(class_.buffers[buffer].offset); };
    for (std::size_t stream = 0; stream < program.streams.size(); ++stream) {
      while (streams_.size() <= stream) streams_.push_back(make_stream());
      resolved.joins.push_back(make_event());
      for (const plan::Call& call : program.streams[stream].calls) {
        ResolvedCall next{&call, stream, {}, call.frame.valid() ? address(call.frame) : nullptr};
        for (plan::BufferId id : call.bindings) next.slots.push_back(address(id));
        resolved.calls.push_back(std::move(next));
        for (const PreparedInstruction& instruction : procedures_[call.procedure.index])
          resolved.capturable = resolved.capturable && instruction.collective == nullptr;
      }
    }
    std::stable_sort(resolved.calls.begin(), resolved.calls.end(),
                     [](const ResolvedCall& a, const ResolvedCall& b) { return a.call->moment < b.call->moment; });
    for (std::uint32_t token = 0; token < program.tokens; ++token) resolved.tokens.push_back(make_event());
    return resolved;
  }

  // The first run is issued call by call, so that everything that is loaded on first use is there; the second is captured.
  void run_program(ResolvedProgram& program, Timeline* timeline) {
    cudaStream_t first = streams_[0].get();
    mirror_.upload(first);
    if (timeline != nullptr) {
      Recorder recorder;
      recorder.start(first);
      issue(program, &recorder);
      check(cudaStreamSynchronize(first), program.program->name);
      recorder.write(*timeline);
    } else if (!program.capturable || program.runs == 0) {
      issue(program, nullptr);
    } else {
      if (!program.graph) program.graph = capture(program);
      check(cudaGraphLaunch(program.graph.get(), first), "cudaGraphLaunch");
    }
    ++program.runs;
    check(cudaStreamSynchronize(first), program.program->name);
    mirror_.forget();
  }

  Graph capture(ResolvedProgram& program) {
    check(cudaStreamBeginCapture(streams_[0].get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    issue(program, nullptr);
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(streams_[0].get(), &captured), "cudaStreamEndCapture");
    cudaGraphExec_t graph = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&graph, captured, 0);
    cudaGraphDestroy(captured);
    check(made, "cudaGraphInstantiate");
    return Graph(graph);
  }

  // Everything starts after what the first stream holds, and the first stream ends after everything.
  void issue(ResolvedProgram& program, Recorder* recorder) {
    const std::size_t streams = program.program->streams.size();
    const auto join = [&](std::size_t from, std::size_t to) {
      check(cudaEventRecord(program.joins[from].get(), streams_[from].get()), "cudaEventRecord");
      check(cudaStreamWaitEvent(streams_[to].get(), program.joins[from].get(), 0), "cudaStreamWaitEvent");
    };
    for (std::size_t stream = 1; stream < streams; ++stream) join(0, stream);
    for (const ResolvedCall& call : program.calls) issue_call(program, call, recorder);
    for (std::size_t stream = 1; stream < streams; ++stream) join(stream, 0);
  }

  void issue_call(ResolvedProgram& program, const ResolvedCall& resolved, Recorder* recorder) {
    const plan::Call& call = *resolved.call;
    cudaStream_t stream = streams_[resolved.stream].get();
    for (plan::TokenId token : call.waits) check(cudaStreamWaitEvent(stream, program.tokens[token.index].get(), 0), "cudaStreamWaitEvent");
    nvtxRangePushA(call.label.c_str());
    Event call_begin = recorder != nullptr ? recorder->now(stream) : Event();
    const plan::Procedure& procedure = plan_.procedures[call.procedure];
    const std::vector<PreparedInstruction>& instructions = procedures_[call.procedure.index];
    for (std::size_t index = 0; index < instructions.size();) {
      const PreparedInstruction& instruction = instructions[index];
      nvtxRangePushA(instruction.detail.c_str());
      Event begin = recorder != nullptr ? recorder->now(stream) : Event();
      if (instruction.collective != nullptr) {
        run_collective(procedure, resolved, *instruction.collective, stream);
        ++index;
      } else {
        const std::size_t end = end_of_alike(procedure, resolved, instructions, index);
        launch(procedure, resolved, std::span(instructions).subspan(index, end - index), stream);
        index = end;
      }
      if (recorder != nullptr)
        recorder->note({instruction.name, instruction.detail, resolved.stream, call.micro_batch, std::move(begin), recorder->now(stream)});
      nvtxRangePop();
    }
    if (recorder != nullptr)
      recorder->note({call.label, "", resolved.stream, call.micro_batch, std::move(call_begin), recorder->now(stream)});
    nvtxRangePop();
    if (call.signals.valid()) check(cudaEventRecord(program.tokens[call.signals.index].get(), stream), "cudaEventRecord");
  }

  std::byte* address_of(const plan::Procedure& procedure, const ResolvedCall& resolved, const plan::Operand& operand) const {
    if (operand.kind == plan::Operand::Kind::temporary) return resolved.frame + procedure.temporaries[operand.index].offset.count;
    return resolved.slots[operand.index] + shard_place_ * operand.shard.count + operand.offset.count;
  }

  // Instructions that follow each other and that one kernel takes together, on the same step scalars: the updates of a block's
  // parameters, the squares of its gradients (tensor ranks have a second block of scalars for those that they share).
  std::size_t end_of_alike(const plan::Procedure& procedure, const ResolvedCall& resolved,
                           const std::vector<PreparedInstruction>& instructions, std::size_t first) const {
    const auto scalars = [&](const PreparedInstruction& instruction) {
      return address_of(procedure, resolved, instruction.compute->inputs[0]);
    };
    std::size_t end = first + 1;
    if (instructions[first].kernel->launch_many == nullptr) return end;
    while (end < instructions.size() && instructions[end].kernel == instructions[first].kernel &&
           scalars(instructions[end]) == scalars(instructions[first]))
      ++end;
    return end;
  }

  // A call's operands, kept while it is launched.
  struct Operands {
    std::array<cuda::Tensor, kMaxOperands> inputs;
    std::array<cuda::Tensor, kMaxOperands> outputs;
  };

  cuda::Call call_of(const plan::Procedure& procedure, const ResolvedCall& resolved, const PreparedInstruction& instruction,
                     Operands& operands) const {
    const plan::Compute& compute = *instruction.compute;
    for (std::size_t index = 0; index < compute.inputs.size(); ++index)
      operands.inputs[index] = {address_of(procedure, resolved, compute.inputs[index]), compute.inputs[index].type};
    for (std::size_t index = 0; index < compute.outputs.size(); ++index)
      operands.outputs[index] = {address_of(procedure, resolved, compute.outputs[index]), compute.outputs[index].type};
    return {.op = compute.op,
            .inputs = std::span(operands.inputs.data(), compute.inputs.size()),
            .outputs = std::span(operands.outputs.data(), compute.outputs.size()),
            .workspace = compute.workspace.count > 0 ? resolved.frame + compute.workspace_offset.count : nullptr,
            .prepared = instruction.prepared.get(),
            .shard_place = shard_place_};
  }

  void launch(const plan::Procedure& procedure, const ResolvedCall& resolved, std::span<const PreparedInstruction> alike,
              cudaStream_t stream) {
    std::vector<Operands> operands(alike.size());
    std::vector<cuda::Call> calls;
    for (std::size_t index = 0; index < alike.size(); ++index) calls.push_back(call_of(procedure, resolved, alike[index], operands[index]));
    if (calls.size() == 1) {
      alike.front().kernel->launch(calls.front(), stream);
    } else {
      alike.front().kernel->launch_many(calls, stream);
    }
  }

  void run_collective(const plan::Procedure& procedure, const ResolvedCall& resolved, const plan::Collective& collective,
                      cudaStream_t stream) {
    for (std::size_t tensor = 0; tensor < collective.inputs.size(); ++tensor) {
      collectives_.run(collective.op, {address_of(procedure, resolved, collective.inputs[tensor]), collective.inputs[tensor].type},
                       {address_of(procedure, resolved, collective.outputs[tensor]), collective.outputs[tensor].type}, stream);
    }
  }

  const plan::Plan& plan_;
  const plan::RankClass& class_;
  std::int64_t shard_place_;  // which shard of a shared buffer is this rank's
  int device_;
  storage::DeviceArena arena_;
  HostMirror mirror_;
  StagedCollectives collectives_;
  std::vector<std::vector<PreparedInstruction>> procedures_;
  std::vector<Stream> streams_;
  std::vector<ResolvedProgram> programs_;
};

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(const plan::Plan& plan, std::int32_t rank, collectives::Transport* transport) {
  return std::make_unique<CudaExecutor>(plan, rank, transport);
}

}  // namespace plimsoll::executor

#include "executor/cuda/cuda_executor.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "executor/core/rank_executor.h"
#include "executor/cuda/device.h"
#include "executor/cuda/device_peers.h"
#include "executor/cuda/handles.h"
#include "executor/cuda/host_calls.h"
#include "executor/cuda/host_mirror.h"
#include "executor/cuda/measured_products.h"
#include "executor/cuda/nvml.h"
#include "executor/cuda/recorder.h"
#include "executor/cuda/shared_gpu.h"
#include "kernels/cuda/live_rows.h"
#include "kernels/cuda/not_finite.h"
#include "kernels/cuda/table.h"
#include "plan/instructions.h"
#include "storage/cuda/device_arena.h"
#include "storage/cuda/pinned_arena.h"

namespace plimsoll::executor {

namespace {

namespace cuda = kernels::cuda;
using cuda::check;

// A kernel of the GPU or of the host with what it settled beforehand, or a collective, a message, or a copy between tiers.
struct PreparedInstruction : InstructionView {
  using InstructionView::InstructionView;

  const cuda::Kernel* kernel = nullptr;
  cuda::Prepared prepared;
  HostInstruction on_host;

  bool meets_others() const { return collective != nullptr || message != nullptr; }
};

struct ResolvedCall : CallMemory {
  std::size_t stream = 0;
  std::unique_ptr<HostCall> on_host;  // null: the GPU's
};

struct ResolvedProgram {
  const plan::Program* program = nullptr;
  std::vector<ResolvedCall> calls;  // of all streams, by moment: whoever waits for a token comes after whoever gives it
  std::vector<Event> tokens;
  std::vector<Event> joins;        // one for each stream: the ends meet on the first
  std::unique_ptr<Tokens> issued;  // which tokens' events have been recorded, where streams have threads of their own
  bool apart = false;  // issued call by call, by a thread for each stream: ranks meet on the host, or several streams are the host's
  std::int64_t runs = 0;
  Graph graph;
};

class CudaExecutor final : public RankExecutor {
 public:
  CudaExecutor(const plan::Plan& plan, const ExecutorOptions& options)
      : RankExecutor(plan, options),
        device_(use_gpu(options.rank)),
        shared_(dynamic_cast<SharedGpu*>(options.shared)),
        kept_{plan::kept_bytes(class_, plan::Tier::device), plan::kept_bytes(class_, plan::Tier::host)},
        arena_(own_bytes(plan::Tier::device)),
        host_arena_(own_bytes(plan::Tier::host)),
        mirror_(class_, [this](plan::BufferId id) { return address(id); }),
        peers_(plan, options.rank, device_, options.transport),
        own_streams_(shared_ == nullptr ? most_streams(class_) : 0),
        streams_(shared_ == nullptr ? own_streams_ : shared_->streams()) {
    PLIMSOLL_CHECK(options.shared == nullptr || (shared_ != nullptr && shared_->device() == device_),
                   "a plan is to run on GPU {}, with the memory of another device", device_);
    PLIMSOLL_CHECK(streams_.size() >= most_streams(class_), "a plan needs {} streams, where {} are", most_streams(class_), streams_.size());
    const MeasuredProducts measured;
    prepare_procedures();
    measured.keep();
    for (const plan::Program& program : class_.programs) programs_.push_back(resolve(program));
    const bool apart = std::any_of(programs_.begin(), programs_.end(), [](const ResolvedProgram& program) { return program.apart; });
    if (apart) {
      for (std::size_t stream = 0; stream < most_streams(class_); ++stream) staging_.push_back(peers_.make_staging());
    }
    check(cudaDeviceSynchronize(), "preparing the plan");
  }

  std::byte* host_view(plan::BufferId buffer, plan::Access access) override {
    if (class_.buffers[buffer].tier == plan::Tier::host) return address(buffer);
    check(cudaSetDevice(device_), "cudaSetDevice");
    return mirror_.view(buffer, access);
  }
  void read(plan::BufferId id, std::int64_t first, std::span<std::byte> out) override {
    check(cudaSetDevice(device_), "cudaSetDevice");
    if (class_.buffers[id].tier != plan::Tier::device || !mirror_.read(id, first, out)) RankExecutor::read(id, first, out);
  }
  void write(plan::BufferId id, std::int64_t first, std::span<const std::byte> data) override {
    const plan::Buffer& buffer = class_.buffers[id];
    check(cudaSetDevice(device_), "cudaSetDevice");
    if (buffer.tier != plan::Tier::device || !mirror_.write(id, first, data)) RankExecutor::write(id, first, data);
  }
  bool is_in_host_memory(plan::BufferId id) const override { return class_.buffers[id].tier == plan::Tier::host; }
  std::optional<DeviceReading> reading() override { return nvml_.reading(); }

 private:
  // What of the tier is not shared with other plans.
  base::Bytes own_bytes(plan::Tier tier) const {
    const base::Bytes all = class_.arena[static_cast<std::size_t>(tier)];
    if (shared_ == nullptr) return all;
    const base::Bytes kept = kept_[static_cast<std::size_t>(tier)];
    const std::size_t there = shared_->passing(tier).size();
    PLIMSOLL_CHECK(there >= static_cast<std::size_t>((all - kept).count), "a plan needs {} of shared memory, where {} B are",
                   base::to_string(all - kept), there);
    return kept;
  }

  std::byte* address(plan::BufferId id) const override {
    const plan::Buffer& buffer = class_.buffers[id];
    PLIMSOLL_CHECK(buffer.tier != plan::Tier::disk, "{} is on disk", buffer.name);
    if (shared_ != nullptr && !buffer.persistent())
      return shared_->passing(buffer.tier).data() + (buffer.offset - kept_[static_cast<std::size_t>(buffer.tier)]).count;
    return buffer.tier == plan::Tier::host ? host_arena_.at(buffer.offset) : arena_.at(buffer.offset);
  }

  // Those that this rank calls. One runs on the host or on the GPU, wherever it is called.
  void prepare_procedures() {
    procedures_.resize(plan_.procedures.size());
    for (const plan::Program& program : class_.programs) {
      for (const plan::Stream& stream : program.streams) {
        for (const plan::Call& call : stream.calls) {
          std::vector<PreparedInstruction>& prepared = procedures_[program.procedure_of(call).index];
          if (prepared.empty())
            prepared = prepare(plan_.procedures[program.procedure_of(call)], stream.kind == plan::StreamKind::host_compute);
        }
      }
    }
  }

  std::vector<PreparedInstruction> prepare(const plan::Procedure& procedure, bool on_host) const {
    std::vector<PreparedInstruction> prepared;
    for (const plan::Instruction& instruction : procedure.instructions) {
      PreparedInstruction& next = prepared.emplace_back(instruction);
      if (next.compute == nullptr) continue;
      if (on_host) {
        next.on_host = prepare_on_host(*next.compute, plan_.threads);
      } else {
        prepare_on_gpu(next);
      }
    }
    return prepared;
  }

  static void prepare_on_gpu(PreparedInstruction& next) {
    const plan::Compute& compute = *next.compute;
    const std::vector<base::TensorType> inputs = types_of(compute.inputs);
    const std::vector<base::TensorType> outputs = types_of(compute.outputs);
    next.kernel = &cuda::kernel_named(compute.kernel);
    next.prepared =
        next.kernel->prepare != nullptr ? next.kernel->prepare({.op = compute.op, .inputs = inputs, .outputs = outputs}) : nullptr;
  }

  ResolvedProgram resolve(const plan::Program& program) {
    ResolvedProgram resolved;
    resolved.program = &program;
    int hosts = 0;
    for (std::size_t stream = 0; stream < program.streams.size(); ++stream) {
      hosts += is_the_hosts(program.streams[stream].kind) ? 1 : 0;
      resolved.joins.push_back(make_event());
      for (const plan::Call& call : program.streams[stream].calls) {
        ResolvedCall next{locate(program, call), stream, nullptr};
        if (is_the_hosts(program.streams[stream].kind)) next.on_host = host_call(next, program.streams[stream].kind);
        for (const PreparedInstruction& instruction : procedures_[program.procedure_of(call).index])
          resolved.apart = resolved.apart || instruction.meets_others();
        resolved.calls.push_back(std::move(next));
      }
    }
    resolved.apart = resolved.apart || hosts > 1;
    std::stable_sort(resolved.calls.begin(), resolved.calls.end(),
                     [](const ResolvedCall& a, const ResolvedCall& b) { return a.call->moment < b.call->moment; });
    for (std::uint32_t token = 0; token < program.tokens; ++token) resolved.tokens.push_back(make_event());
    resolved.issued = std::make_unique<Tokens>(program.tokens);
    return resolved;
  }

  static bool touches_drive(plan::StreamKind kind) { return kind == plan::StreamKind::disk_in || kind == plan::StreamKind::disk_out; }
  static bool is_the_hosts(plan::StreamKind kind) { return kind == plan::StreamKind::host_compute || touches_drive(kind); }

  std::unique_ptr<HostCall> host_call(const ResolvedCall& resolved, plan::StreamKind kind) {
    const plan::Call& call = *resolved.call;
    const plan::Procedure& procedure = plan_.procedures[resolved.procedure];
    if (touches_drive(kind)) {
      const auto copy = [this, &procedure, &call, slots = resolved.slots] {
        ask_before(call);
        disk_.copy(procedure, call, shard_place_, [&](const plan::Operand& operand) {
          return slots[operand.index] + shard_place_ * operand.shard.count + operand.offset.count;
        });
      };
      return std::make_unique<HostCall>(copy, host_errors_);
    }
    HostKernels kernels(plan_.threads, shard_place_);
    for (const PreparedInstruction& prepared : procedures_[resolved.procedure.index]) {
      PLIMSOLL_CHECK(prepared.on_host.kernel != nullptr, "{} moves data where the host computes", procedure.name);
      const plan::Compute& compute = *prepared.on_host.compute;
      const auto tensors = [&](const std::vector<plan::Operand>& operands) {
        std::vector<kernels::cpu::Tensor> found;
        for (const plan::Operand& operand : operands) found.push_back({address_of(procedure, resolved, operand), operand.type});
        return found;
      };
      kernels.add(prepared.on_host, tensors(compute.inputs), tensors(compute.outputs),
                  compute.workspace.count > 0 ? resolved.frame + compute.workspace_offset.count : nullptr);
    }
    const auto compute = [this, &call, kernels = std::move(kernels)] {
      ask_before(call);
      kernels.run();
    };
    return std::make_unique<HostCall>(compute, host_errors_);
  }

  // The first run is issued call by call, so that everything that is loaded on first use is there; the second is captured.
  void run_program(std::size_t index, Timeline* timeline) override {
    std::optional<SharedDevice::Turn> turn;
    if (shared_ != nullptr) turn.emplace(*shared_, class_.programs[index].name);
    check(cudaSetDevice(device_), "cudaSetDevice");
    ResolvedProgram& program = programs_[index];
    cudaStream_t first = stream_at(0);
    mirror_.upload(first);
    if (timeline != nullptr) {
      Recorder recorder(first, timeline->looks);
      issue(program, &recorder);
      check(cudaStreamSynchronize(first), program.program->name);
      recorder.write(*timeline);
    } else if (program.apart || program.runs == 0) {
      issue(program, nullptr);
    } else {
      if (!program.graph) program.graph = capture(program);
      check(cudaGraphLaunch(program.graph.get(), first), "cudaGraphLaunch");
    }
    ++program.runs;
    check(cudaEventRecord(program.joins[0].get(), first), "cudaEventRecord");
    check(cudaEventSynchronize(program.joins[0].get()), program.program->name);
    host_errors_.rethrow();
    mirror_.forget();
  }

  cudaStream_t stream_at(std::size_t stream) const { return streams_.at(stream); }

  Graph capture(ResolvedProgram& program) {
    check(cudaStreamBeginCapture(stream_at(0), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    issue(program, nullptr);
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(stream_at(0), &captured), "cudaStreamEndCapture");
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
      check(cudaEventRecord(program.joins[from].get(), stream_at(from)), "cudaEventRecord");
      check(cudaStreamWaitEvent(stream_at(to), program.joins[from].get(), 0), "cudaStreamWaitEvent");
    };
    for (std::size_t stream = 1; stream < streams; ++stream) join(0, stream);
    if (program.apart && streams > 1) {
      issue_apart(program, recorder);
    } else {
      for (const ResolvedCall& call : program.calls) issue_call(program, call, recorder);
    }
    for (std::size_t stream = 1; stream < streams; ++stream) join(stream, 0);
  }

  // A thread for each stream. What waits for a token is issued when the token's event has been recorded; what the host does itself waits
  // for the event.
  void issue_apart(ResolvedProgram& program, Recorder* recorder) {
    program.issued->start();
    const auto issue_stream = [&](std::size_t stream) {
      check(cudaSetDevice(device_), "cudaSetDevice");
      if (is_the_hosts(program.program->streams[stream].kind)) check(cudaStreamSynchronize(stream_at(stream)), "before a step");
      for (const ResolvedCall& call : program.calls) {
        if (call.stream != stream) continue;
        for (plan::TokenId token : call.call->waits) program.issued->wait(token.index);
        issue_call(program, call, recorder);
        if (call.call->signals.valid()) program.issued->give(call.call->signals.index);
      }
    };
    streams_.threads().run(program.program->streams.size(), issue_stream,
                           [&](const std::exception_ptr& error) { give_up(*program.issued, error); });
  }

  void issue_call(ResolvedProgram& program, const ResolvedCall& resolved, Recorder* recorder) {
    const plan::Call& call = *resolved.call;
    cudaStream_t stream = stream_at(resolved.stream);
    const bool here = program.apart && resolved.on_host != nullptr;
    for (plan::TokenId token : call.waits) {
      cudaEvent_t given = program.tokens[token.index].get();
      if (here) {
        check(cudaEventSynchronize(given), "waiting for the device");
      } else {
        check(cudaStreamWaitEvent(stream, given, 0), "cudaStreamWaitEvent");
      }
    }
    nvtxRangePushA(call.label.text().c_str());
    Event call_begin = recorder != nullptr ? Recorder::now(stream) : Event();
    if (resolved.on_host != nullptr) {
      do_on_host(program, resolved, stream, recorder);
    } else {
      issue_instructions(resolved, stream, recorder);
    }
    if (recorder != nullptr)
      recorder->note({call.label, "", resolved.stream, call.micro_batch, std::move(call_begin), Recorder::now(stream)});
    nvtxRangePop();
    if (call.signals.valid()) check(cudaEventRecord(program.tokens[call.signals.index].get(), stream), "cudaEventRecord");
  }

  // In a timeline it is one instruction, the first.
  void do_on_host(const ResolvedProgram& program, const ResolvedCall& resolved, cudaStream_t stream, Recorder* recorder) {
    Event begin = recorder != nullptr ? Recorder::now(stream) : Event();
    if (program.apart) {
      resolved.on_host->run_here();
    } else {
      resolved.on_host->launch(stream);
    }
    if (recorder == nullptr) return;
    const PreparedInstruction& first = procedures_[resolved.procedure.index].front();
    recorder->note({first.name, first.detail, resolved.stream, resolved.call->micro_batch, std::move(begin), Recorder::now(stream)});
  }

  void issue_instructions(const ResolvedCall& resolved, cudaStream_t stream, Recorder* recorder) {
    const plan::Procedure& procedure = plan_.procedures[resolved.procedure];
    const std::vector<PreparedInstruction>& instructions = procedures_[resolved.procedure.index];
    for (std::size_t index = 0; index < instructions.size();) {
      const PreparedInstruction& instruction = instructions[index];
      nvtxRangePushA(instruction.detail.c_str());
      Event begin = recorder != nullptr ? Recorder::now(stream) : Event();
      if (instruction.kernel != nullptr) {
        const bool looks = recorder != nullptr && recorder->looks();
        const std::size_t end = looks ? index + 1 : end_of_alike(procedure, resolved, instructions, index);
        const auto start = [&] { launch(procedure, resolved, std::span(instructions).subspan(index, end - index), stream); };
        if (looks) {
          look_into(procedure, resolved, instruction, start, stream, *recorder);
        } else {
          start();
        }
        index = end;
      } else {
        move(procedure, resolved, instruction, stream);
        ++index;
      }
      if (recorder != nullptr) {
        recorder->note(
            {instruction.name, instruction.detail, resolved.stream, resolved.call->micro_batch, std::move(begin), Recorder::now(stream)});
      }
      nvtxRangePop();
    }
  }

  // The operands of an instruction are read before it starts and after: the host waits for both.
  template <typename Start>
  void look_into(const plan::Procedure& procedure, const ResolvedCall& resolved, const PreparedInstruction& instruction, const Start& start,
                 cudaStream_t stream, Recorder& recorder) const {
    const AllFinite all_finite = [&](const std::byte* data, const base::TensorType& type) { return cuda::all_finite(data, type, stream); };
    const std::string read = not_finite_in(procedure, resolved, instruction.compute->inputs, all_finite);
    start();
    const std::string given = read.empty() ? not_finite_in(procedure, resolved, instruction.compute->outputs, all_finite) : "";
    if (!read.empty() || !given.empty()) recorder.note(not_finite_at(instruction, *resolved.call, read, given, 0.0));
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
    for (std::size_t index = 0; index < alike.size(); ++index) {
      calls.push_back(call_of(procedure, resolved, alike[index], operands[index]));
      const plan::Compute& compute = *alike[index].compute;
      if (compute.live) clear_rows(*compute.live, calls.back(), address_of(procedure, resolved, compute.live->count), stream);
    }
    if (calls.size() == 1) {
      alike.front().kernel->launch(calls.front(), stream);
    } else {
      alike.front().kernel->launch_many(calls, stream);
    }
  }

  // What a call reads of rows that hold nothing are zeros.
  static void clear_rows(const plan::LiveRows& live, const cuda::Call& call, const std::byte* count, cudaStream_t stream) {
    std::vector<cuda::Tensor> bounded;
    for (std::size_t index = 0; index < call.inputs.size(); ++index) {
      if (plan::LiveRows::has(live.inputs, index)) bounded.push_back(call.inputs[index]);
    }
    cuda::clear_dead_rows(bounded, reinterpret_cast<const std::int32_t*>(count), live.bound, stream);
  }

  void move(const plan::Procedure& procedure, const ResolvedCall& resolved, const PreparedInstruction& instruction, cudaStream_t stream) {
    const auto tensor = [&](const plan::Operand& operand) { return cuda::Tensor{address_of(procedure, resolved, operand), operand.type}; };
    if (instruction.copy != nullptr) {
      const plan::Copy& copy = *instruction.copy;
      check(cudaMemcpyAsync(tensor(copy.to).data, tensor(copy.from).data, static_cast<std::size_t>(copy.from.type.bytes()),
                            cudaMemcpyDefault, stream),
            instruction.detail);
    } else if (instruction.message != nullptr) {
      const plan::Message& message = *instruction.message;
      const plan::Operand& operand = message.op.receive ? message.outputs[0] : message.inputs[0];
      const base::TensorType sent{message.op.dtype, message.op.shape};
      std::byte* data = static_cast<std::byte*>(address_of(procedure, resolved, operand)) + message.op.first * base::size_of(sent.dtype);
      peers_.run(message.op, resolved.call->micro_batch, cuda::Tensor{data, sent}, staging_[resolved.stream], stream);
    } else {
      const plan::Collective& collective = *instruction.collective;
      for (std::size_t index = 0; index < collective.inputs.size(); ++index)
        peers_.run(collective.op, tensor(collective.inputs[index]), tensor(collective.outputs[index]), staging_[resolved.stream], stream);
    }
  }

  int device_;
  SharedGpu* shared_;                  // null: all memory and streams are this executor's own
  std::array<base::Bytes, 2> kept_{};  // by tier: what every program keeps
  Nvml nvml_{device_};
  storage::DeviceArena arena_;
  storage::PinnedArena host_arena_;
  HostMirror mirror_;
  DevicePeers peers_;
  std::vector<DevicePeers::Staging> staging_;  // by stream
  HostErrors host_errors_;
  std::vector<std::vector<PreparedInstruction>> procedures_;
  StreamSet own_streams_;
  StreamSet& streams_;
  std::vector<ResolvedProgram> programs_;
};

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(const plan::Plan& plan, const ExecutorOptions& options) {
  return std::make_unique<CudaExecutor>(plan, options);
}

}  // namespace plimsoll::executor

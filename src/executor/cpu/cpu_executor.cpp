#include "executor/cpu/cpu_executor.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "executor/core/not_finite.h"
#include "executor/core/peers.h"
#include "executor/core/rank_executor.h"
#include "executor/core/stream_workers.h"
#include "kernels/cpu/table.h"
#include "observe/clock.h"
#include "ops/live_rows.h"
#include "plan/instructions.h"
#include "storage/host_arena.h"

namespace plimsoll::executor {

namespace {

namespace cpu = kernels::cpu;

// A kernel with what it settled beforehand, or a collective, a message, or a copy between tiers.
struct PreparedInstruction : InstructionView {
  using InstructionView::InstructionView;

  const cpu::Kernel* kernel = nullptr;
  cpu::Prepared prepared;
};

struct ResolvedProgram {
  std::vector<std::vector<CallMemory>> streams;
  std::unique_ptr<Tokens> tokens;
};

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Beside the first stream, at most.
std::size_t workers_for(const plan::RankClass& rank_class) {
  std::size_t streams = 1;
  for (const plan::Program& program : rank_class.programs) streams = std::max(streams, program.streams.size());
  return streams - 1;
}

class SharedProcessor final : public SharedDevice {
 public:
  SharedProcessor(std::span<const plan::Plan* const> plans, std::int32_t rank)
      : arenas_{storage::HostArena(passing_bytes(plans, rank, plan::Tier::device)),
                storage::HostArena(passing_bytes(plans, rank, plan::Tier::host))} {
    std::size_t workers = 0;
    for (const plan::Plan* plan : plans) workers = std::max(workers, workers_for(plan::class_of(*plan, rank)));
    if (workers > 0) workers_ = std::make_unique<StreamWorkers>(workers);
  }

  std::span<std::byte> passing(plan::Tier tier) const override {
    if (tier == plan::Tier::disk) return {};
    const storage::HostArena& arena = arenas_[static_cast<std::size_t>(tier)];
    return {arena.at({}), static_cast<std::size_t>(arena.size().count)};
  }
  StreamWorkers* workers() const { return workers_.get(); }

 private:
  std::array<storage::HostArena, 2> arenas_;
  std::unique_ptr<StreamWorkers> workers_;
};

class CpuExecutor final : public RankExecutor {
 public:
  CpuExecutor(const plan::Plan& plan, const ExecutorOptions& options)
      : RankExecutor(plan, options),
        shared_(options.shared),
        kept_{plan::kept_bytes(class_, plan::Tier::device), plan::kept_bytes(class_, plan::Tier::host)},
        arenas_{own_arena(plan::Tier::device), own_arena(plan::Tier::host)},
        peers_(plan, options.rank, options.transport) {
    for (const plan::Procedure& procedure : plan_.procedures) procedures_.push_back(prepare(procedure));
    for (const plan::Program& program : class_.programs) programs_.push_back(resolve(program));
    if (const std::size_t workers = workers_for(class_); workers > 0) {
      if (shared_ == nullptr) own_workers_ = std::make_unique<StreamWorkers>(workers);
      workers_ = shared_ == nullptr ? own_workers_.get() : dynamic_cast<SharedProcessor&>(*shared_).workers();
    }
  }

  std::byte* host_view(plan::BufferId buffer, plan::Access) override { return address(buffer); }

 private:
  // What of the tier is not shared with other plans.
  storage::HostArena own_arena(plan::Tier tier) const {
    const base::Bytes all = class_.arena[static_cast<std::size_t>(tier)];
    if (shared_ == nullptr) return storage::HostArena(all);
    const base::Bytes kept = kept_[static_cast<std::size_t>(tier)];
    const std::size_t there = shared_->passing(tier).size();
    PLIMSOLL_CHECK(there >= static_cast<std::size_t>((all - kept).count), "a plan needs {} of shared memory, where {} B are",
                   base::to_string(all - kept), there);
    return storage::HostArena(kept);
  }

  std::byte* address(plan::BufferId id) const override {
    const plan::Buffer& buffer = class_.buffers[id];
    PLIMSOLL_CHECK(buffer.tier != plan::Tier::disk, "{} is on disk", buffer.name);
    if (shared_ != nullptr && !buffer.persistent())
      return shared_->passing(buffer.tier).data() + (buffer.offset - kept_[static_cast<std::size_t>(buffer.tier)]).count;
    return arenas_[static_cast<std::size_t>(buffer.tier)].at(buffer.offset);
  }

  std::vector<PreparedInstruction> prepare(const plan::Procedure& procedure) const {
    std::vector<PreparedInstruction> prepared;
    for (const plan::Instruction& instruction : procedure.instructions) {
      PreparedInstruction& next = prepared.emplace_back(instruction);
      if (next.compute == nullptr) continue;
      const std::vector<base::TensorType> inputs = types_of(next.compute->inputs);
      const std::vector<base::TensorType> outputs = types_of(next.compute->outputs);
      const ops::KernelQuery query{.op = next.compute->op, .inputs = inputs, .outputs = outputs, .threads = plan_.threads};
      next.kernel = &cpu::kernel_named(next.compute->kernel);
      next.prepared = next.kernel->prepare != nullptr ? next.kernel->prepare(query) : nullptr;
    }
    return prepared;
  }

  ResolvedProgram resolve(const plan::Program& program) const {
    ResolvedProgram resolved{.streams = {}, .tokens = std::make_unique<Tokens>(program.tokens)};
    for (const plan::Stream& stream : program.streams) {
      std::vector<CallMemory>& calls = resolved.streams.emplace_back();
      for (const plan::Call& call : stream.calls) calls.push_back(locate(program, call));
    }
    return resolved;
  }

  void run_program(std::size_t index, Timeline* timeline) override {
    std::optional<SharedDevice::Turn> turn;
    if (shared_ != nullptr) turn.emplace(*shared_, class_.programs[index].name);
    ResolvedProgram& program = programs_[index];
    const double start = observe::seconds_now();
    std::vector<Timeline> lines(program.streams.size(), Timeline{.events = {}, .looks = timeline != nullptr && timeline->looks});
    const auto run_stream = [&](std::size_t stream) {
      Timeline* line = timeline != nullptr ? &lines[stream] : nullptr;
      for (const CallMemory& call : program.streams[stream])
        run_call(call, *program.tokens, {line, start, static_cast<std::int32_t>(stream)});
    };
    program.tokens->start();
    if (program.streams.size() == 1) {
      run_stream(0);
    } else {
      workers_->run(program.streams.size(), run_stream, [&](const std::exception_ptr& error) { give_up(*program.tokens, error); });
    }
    if (timeline == nullptr) return;
    for (const Timeline& line : lines) {
      timeline->events.insert(timeline->events.end(), line.events.begin(), line.events.end());
      if (line.not_finite && (!timeline->not_finite || line.not_finite->when < timeline->not_finite->when))
        timeline->not_finite = line.not_finite;
    }
  }

  struct Watch {
    Timeline* timeline = nullptr;
    double start = 0.0;
    std::int32_t stream = 0;

    struct Moment {
      double wall = 0.0;
      double processor = 0.0;
    };
    bool looks() const { return timeline != nullptr && timeline->looks && !timeline->not_finite; }
    Moment now() const { return timeline != nullptr ? Moment{observe::seconds_now() - start, thread_seconds()} : Moment{}; }
    void note(const std::string& name, const std::string& detail, std::int32_t micro_batch, const Moment& begin) const {
      if (timeline == nullptr) return;
      const Moment end = now();
      timeline->events.push_back({name, detail, stream, micro_batch, begin.wall, end.wall, end.processor - begin.processor});
    }
  };

  void run_call(const CallMemory& resolved, Tokens& tokens, const Watch& watch) {
    for (plan::TokenId token : resolved.call->waits) tokens.wait(token.index);
    ask_before(*resolved.call);
    const Watch::Moment begin = watch.now();
    const plan::Procedure& procedure = plan_.procedures[resolved.procedure];
    const std::vector<PreparedInstruction>& instructions = procedures_[resolved.procedure.index];
    if (!instructions.empty() && DiskTier::touches(procedure.instructions.front())) {
      disk_.copy(procedure, *resolved.call, shard_place_,
                 [&](const plan::Operand& operand) { return address_of(procedure, resolved, operand); });
      watch.note(instructions.front().name, instructions.front().detail, resolved.call->micro_batch, begin);
    } else {
      for (const PreparedInstruction& instruction : instructions) run_instruction(procedure, resolved, instruction, watch);
    }
    watch.note(resolved.call->label, "", resolved.call->micro_batch, begin);
    if (resolved.call->signals.valid()) tokens.give(resolved.call->signals.index);
  }

  void run_instruction(const plan::Procedure& procedure, const CallMemory& resolved, const PreparedInstruction& instruction,
                       const Watch& watch) {
    const Watch::Moment instruction_begin = watch.now();
    if (instruction.collective != nullptr) {
      run_collective(procedure, resolved, *instruction.collective);
    } else if (instruction.message != nullptr) {
      run_message(procedure, resolved, *instruction.message);
    } else if (instruction.copy != nullptr) {
      const std::span<std::byte> from = memory_of(procedure, resolved, instruction.copy->from);
      std::memcpy(memory_of(procedure, resolved, instruction.copy->to).data(), from.data(), from.size());
    } else {
      const bool looks = watch.looks() && !instruction.compute->live;  // behind the rows that hold something lies anything
      const std::string read = looks ? not_finite_in(procedure, resolved, instruction.compute->inputs, all_finite) : "";
      run_kernel(procedure, resolved, instruction);
      const std::string given = looks && read.empty() ? not_finite_in(procedure, resolved, instruction.compute->outputs, all_finite) : "";
      if (!read.empty() || !given.empty())
        watch.timeline->not_finite = not_finite_at(instruction, *resolved.call, read, given, watch.now().wall);
    }
    watch.note(instruction.name, instruction.detail, resolved.call->micro_batch, instruction_begin);
  }

  void run_kernel(const plan::Procedure& procedure, const CallMemory& resolved, const PreparedInstruction& instruction) {
    const plan::Compute& compute = *instruction.compute;
    std::array<cpu::Tensor, kMaxOperands> inputs;
    std::array<cpu::Tensor, kMaxOperands> outputs;
    const auto address = [&](const plan::Operand& operand) { return address_of(procedure, resolved, operand); };
    for (std::size_t index = 0; index < compute.inputs.size(); ++index)
      inputs[index] = {address(compute.inputs[index]), compute.inputs[index].type};
    for (std::size_t index = 0; index < compute.outputs.size(); ++index)
      outputs[index] = {address(compute.outputs[index]), compute.outputs[index].type};
    if (compute.live && !leave_live_rows(compute, address(compute.live->count), inputs, outputs)) return;
    instruction.kernel->run({.op = compute.op,
                             .inputs = std::span(inputs.data(), compute.inputs.size()),
                             .outputs = std::span(outputs.data(), compute.outputs.size()),
                             .workspace = compute.workspace.count > 0 ? resolved.frame + compute.workspace_offset.count : nullptr,
                             .threads = plan_.threads,
                             .prepared = instruction.prepared.get(),
                             .shard_place = shard_place_});
  }

  // Kernels see the rows that there are, and never more than there is room for. False: there are none, so that nothing is left to do.
  static bool leave_live_rows(const plan::Compute& compute, const std::byte* counted, std::span<cpu::Tensor> inputs,
                              std::span<cpu::Tensor> outputs) {
    const plan::LiveRows& live = *compute.live;
    std::int32_t count = 0;
    std::memcpy(&count, counted, sizeof count);
    const std::int64_t rows = std::clamp<std::int64_t>(count, 0, live.bound);
    for (std::size_t index = 0; index < compute.inputs.size() && rows > 0; ++index) {
      if (plan::LiveRows::has(live.inputs, index)) inputs[index].type = ops::with_rows(inputs[index].type, live.bound, rows);
    }
    for (std::size_t index = 0; index < compute.outputs.size(); ++index) {
      if (plan::LiveRows::has(live.outputs, index)) {
        if (rows > 0) outputs[index].type = ops::with_rows(outputs[index].type, live.bound, rows);
        continue;
      }
      // A sum over no rows: zero, or what it is added to.
      const bool adds = std::any_of(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(compute.inputs.size()),
                                    [&](const cpu::Tensor& input) { return input.data == outputs[index].data; });
      if (rows == 0 && !adds) std::memset(outputs[index].data, 0, static_cast<std::size_t>(outputs[index].type.bytes()));
    }
    return rows > 0;
  }

  std::span<std::byte> memory_of(const plan::Procedure& procedure, const CallMemory& resolved, const plan::Operand& operand) const {
    return {address_of(procedure, resolved, operand), static_cast<std::size_t>(operand.type.bytes())};
  }

  void run_collective(const plan::Procedure& procedure, const CallMemory& resolved, const plan::Collective& collective) {
    const auto tensor = [&](const plan::Operand& operand) { return Peers::Tensor{address_of(procedure, resolved, operand), operand.type}; };
    for (std::size_t index = 0; index < collective.inputs.size(); ++index)
      peers_.run(collective.op, tensor(collective.inputs[index]), tensor(collective.outputs[index]));
  }

  void run_message(const plan::Procedure& procedure, const CallMemory& resolved, const plan::Message& message) {
    const plan::Operand& operand = message.op.receive ? message.outputs[0] : message.inputs[0];
    const base::TensorType sent{message.op.dtype, message.op.shape};
    std::byte* data = address_of(procedure, resolved, operand) + message.op.first * base::size_of(sent.dtype);
    peers_.run(message.op, resolved.call->micro_batch, {data, static_cast<std::size_t>(sent.bytes())});
  }

  SharedDevice* const shared_;
  const std::array<base::Bytes, 2> kept_;     // of what programs keep, by tier
  std::array<storage::HostArena, 2> arenas_;  // the device's and the host's: the same memory, each with its own limit
  Peers peers_;
  std::vector<std::vector<PreparedInstruction>> procedures_;
  std::vector<ResolvedProgram> programs_;
  std::unique_ptr<StreamWorkers> own_workers_;
  StreamWorkers* workers_ = nullptr;
};

}  // namespace

std::unique_ptr<SharedDevice> share_cpu(std::span<const plan::Plan* const> plans, std::int32_t rank) {
  return std::make_unique<SharedProcessor>(plans, rank);
}

std::unique_ptr<Executor> make_cpu_executor(const plan::Plan& plan, const ExecutorOptions& options) {
  return std::make_unique<CpuExecutor>(plan, options);
}

}  // namespace plimsoll::executor

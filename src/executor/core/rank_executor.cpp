#include "executor/core/rank_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "plan/instructions.h"

namespace plimsoll::executor {

namespace {

// Tells the others.
void abort_for(collectives::Transport& transport, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    transport.abort(caught.what(), collectives::kind_of(caught));
  } catch (...) {
    transport.abort("an unknown error", base::ErrorKind::other);
  }
}

}  // namespace

InstructionView::InstructionView(const plan::Instruction& instruction) {
  plan::match(
      instruction,
      [&](const plan::Compute& each) {
        compute = &each;
        PLIMSOLL_CHECK(each.inputs.size() <= kMaxOperands && each.outputs.size() <= kMaxOperands, "{} has too many operands", each.kernel);
        name = std::string(ops::name_of(each.op));
        detail = each.kernel;
      },
      [&](const plan::Collective& each) {
        collective = &each;
        name = std::string(ops::name_of(each.op.kind));
        detail = fmt::format("{}.{}", name, ops::name_of(each.op.axis));
      },
      [&](const plan::Message& each) {
        message = &each;
        name = each.op.receive ? "receive" : "send";
        detail = fmt::format("{}.{}", name, each.op.peer);
      },
      [&](const plan::Copy& each) {
        copy = &each;
        name = "move";
        detail = fmt::format("{} to {}", ops::name_of(each.op.from), ops::name_of(each.op.to));
      },
      [&](const plan::RowCopy& each) {
        rows = &each;
        name = "move_rows";
        detail = each.op.back ? "host to disk" : "disk to host";
      });
}

RankExecutor::RankExecutor(const plan::Plan& plan, const ExecutorOptions& options)
    : plan_(plan),
      class_(plan::class_of(plan, options.rank)),
      shard_place_(plan.mesh.place(plan.mesh.shard_axis(), options.rank)),
      disk_(plan_, class_, options),
      transport_(options.transport) {}

void RankExecutor::run(std::string_view name, Timeline* timeline) {
  for (std::size_t index = 0; index < class_.programs.size(); ++index) {
    if (class_.programs[index].name == name) return run_program(index, timeline);
  }
  PLIMSOLL_CHECK(false, "the plan has no program {}", name);
}

void RankExecutor::read(plan::BufferId id, std::int64_t first, std::span<std::byte> out) {
  const plan::Buffer& buffer = class_.buffers[id];
  if (buffer.tier != plan::Tier::disk) return Executor::read(id, first, out);
  disk_.read(buffer, first, out);
}

void RankExecutor::write(plan::BufferId id, std::int64_t first, std::span<const std::byte> data) {
  const plan::Buffer& buffer = class_.buffers[id];
  if (buffer.tier != plan::Tier::disk) return Executor::write(id, first, data);
  disk_.write(buffer, first, data);
}

CallMemory RankExecutor::locate(const plan::Program& program, const plan::Call& call) const {
  CallMemory memory{&call, program.procedure_of(call), {}, call.frame.valid() ? address(call.frame) : nullptr};
  for (plan::BufferId id : call.bindings) memory.slots.push_back(class_.buffers[id].tier == plan::Tier::disk ? nullptr : address(id));
  return memory;
}

void RankExecutor::give_up(Tokens& tokens, const std::exception_ptr& error) {
  tokens.fail();
  if (transport_ != nullptr) abort_for(*transport_, error);
}

std::string RankExecutor::not_finite_in(const plan::Procedure& procedure, const CallMemory& memory,
                                        const std::vector<plan::Operand>& operands, const AllFinite& all_finite) const {
  for (const plan::Operand& operand : operands) {
    if (all_finite(address_of(procedure, memory, operand), operand.type)) continue;
    if (operand.kind == plan::Operand::Kind::temporary) return procedure.temporaries[operand.index].name;
    return class_.buffers[memory.call->bindings[operand.index]].name;
  }
  return "";
}

NotFinite RankExecutor::not_finite_at(const InstructionView& instruction, const plan::Call& call, const std::string& read,
                                      const std::string& given, double when) const {
  // What was there before the program began has not come from another rank.
  const bool held = std::any_of(class_.buffers.begin(), class_.buffers.end(),
                                [&](const plan::Buffer& buffer) { return buffer.name == read && buffer.persistent(); });
  const std::string what = read.empty() ? fmt::format("gave {} from finite numbers", given) : fmt::format("read {}", read);
  return {.text = fmt::format("[{}] {} in {}, micro-batch {}", instruction.name, what, call.label, call.micro_batch),
          .brought_in = !read.empty() && !held,
          .when = when};
}

}  // namespace plimsoll::executor

#include "plan/traffic.h"

#include <algorithm>

namespace plimsoll::plan {

namespace {

Traffic& entry_of(std::vector<Traffic>& entries, ops::Axis axis, std::string_view kind) {
  for (Traffic& entry : entries) {
    if (entry.axis == axis && entry.kind == kind) return entry;
  }
  return entries.emplace_back(Traffic{.axis = axis, .kind = kind});
}

void add_call(std::vector<Traffic>& entries, const Plan& plan, const Procedure& procedure, std::int32_t rank) {
  for (const Instruction& instruction : procedure.instructions) {
    if (const auto* message = std::get_if<Message>(&instruction); message != nullptr && !message->op.receive) {
      Traffic& entry = entry_of(entries, ops::Axis::pipe, "message");
      ++entry.calls;
      entry.bytes.count += message->op.shape.elements() * base::size_of(message->op.dtype);  // of its operand perhaps some rows
    }
    if (const auto* collective = std::get_if<Collective>(&instruction)) {
      Traffic& entry = entry_of(entries, collective->op.axis, name_of(collective->op.kind));
      ++entry.calls;
      const std::int32_t place = plan.mesh.place(collective->op.axis, rank);
      for (std::size_t tensor = 0; tensor < collective->inputs.size(); ++tensor)
        entry.bytes.count += sent_bytes(collective->op, collective->inputs[tensor].type, collective->outputs[tensor].type, place);
    }
  }
}

}  // namespace

std::int64_t sent_bytes(const ops::Collective& op, const TensorType& given, const TensorType& made, std::int64_t place) {
  const std::int64_t others = op.members - 1;
  switch (op.kind) {
    case ops::CollectiveKind::all_reduce: {
      // Elements are dealt out evenly; the first ranks have one more.
      const std::int64_t elements = given.shape.elements() - op.first;
      const std::int64_t own = elements / op.members + (place < elements % op.members ? 1 : 0);
      return (others * own + elements - own) * base::size_of(given.dtype);
    }
    case ops::CollectiveKind::reduce_scatter: return given.bytes() - made.bytes();
    case ops::CollectiveKind::all_gather: return others * given.bytes();
    case ops::CollectiveKind::reduce: return place == 0 ? 0 : given.bytes();
    case ops::CollectiveKind::broadcast: return place == 0 ? others * given.bytes() : 0;
  }
  return 0;
}

std::vector<Traffic> traffic_of(const Plan& plan, const Program& program, std::int32_t rank) {
  std::vector<Traffic> entries;
  for (const Stream& stream : program.streams) {
    for (const Call& call : stream.calls) add_call(entries, plan, plan.procedures[program.procedure_of(call)], rank);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Traffic& a, const Traffic& b) { return a.bytes > b.bytes; });
  return entries;
}

}  // namespace plimsoll::plan

#include "plan/traffic.h"

#include <algorithm>

#include "plan/instructions.h"

namespace plimsoll::plan {

namespace {

Traffic& entry_of(std::vector<Traffic>& entries, const ops::Axis& axis, std::string_view kind) {
  for (Traffic& entry : entries) {
    if (entry.axis == axis && entry.kind == kind) return entry;
  }
  return entries.emplace_back(Traffic{.axis = axis, .kind = kind});
}

}  // namespace

std::int64_t sent_bytes(const Collective& collective, std::int64_t place) {
  std::int64_t sum = 0;
  for (std::size_t tensor = 0; tensor < collective.inputs.size(); ++tensor)
    sum += sent_bytes(collective.op, collective.inputs[tensor].type, collective.outputs[tensor].type, place);
  return sum;
}

// Of its operand perhaps some rows.
std::int64_t sent_bytes(const Message& message) {
  return message.op.receive ? 0 : message.op.shape.elements() * base::size_of(message.op.dtype);
}

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
    case ops::CollectiveKind::all_to_all: return others * (given.bytes() / op.members);
  }
  return 0;
}

std::vector<Traffic> traffic_of(const Plan& plan, const Program& program, std::int32_t rank) {
  std::vector<Traffic> entries;
  const auto add = [&](const ops::Axis& axis, std::string_view kind, std::int64_t bytes) {
    Traffic& entry = entry_of(entries, axis, kind);
    ++entry.calls;
    entry.bytes.count += bytes;
  };
  match_all(
      plan, program,
      [&](const Call&, const Message& message) {
        if (!message.op.receive) add(ops::Axis::pipe, "message", sent_bytes(message));
      },
      [&](const Call&, const Collective& collective) {
        const ops::Axis& axis = collective.op.axis;
        add(axis, name_of(collective.op.kind), sent_bytes(collective, plan.mesh.place(axis, rank)));
      },
      kIgnoreOthers);
  std::stable_sort(entries.begin(), entries.end(), [](const Traffic& a, const Traffic& b) { return a.bytes > b.bytes; });
  return entries;
}

}  // namespace plimsoll::plan

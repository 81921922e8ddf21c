#include "plan/print.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "plan/instructions.h"

namespace plimsoll::plan {

namespace {

std::string operand_text(const Procedure& procedure, const Operand& operand) {
  if (operand.kind != Operand::Kind::slot) return "%" + procedure.temporaries.at(operand.index).name;
  const std::string part = operand.offset.count > 0 ? fmt::format("[{} B on]", operand.offset.count) : "";
  return procedure.slots.at(operand.index).name + (operand.shard.count > 0 ? "[own]" : "") + part;
}

std::string operand_list(const Procedure& procedure, std::span<const Operand> operands) {
  std::string list;
  for (const Operand& operand : operands) list += (list.empty() ? "" : ", ") + operand_text(procedure, operand);
  return list;
}

std::string instruction_text(const Procedure& procedure, const Instruction& instruction) {
  const auto [inputs, outputs] = operands_of(instruction);
  const std::string given = operand_list(procedure, inputs);
  const std::string made = operand_list(procedure, outputs);
  return match(
      instruction,
      [&](const Message& message) {
        const std::string op = ops::to_string(message.op);
        return message.op.receive ? fmt::format("{} = {}", made, op) : fmt::format("{} <- {}", op, given);
      },
      [&](const Compute& compute) {
        const std::string rows =
            compute.live ? fmt::format(" for {} of {} rows", operand_list(procedure, {&compute.live->count, 1}), compute.live->bound) : "";
        std::string text = fmt::format("{} = {} <- {} by {}{}", made, ops::to_string(compute.op), given, compute.kernel, rows);
        if (compute.workspace.count == 0) return text;
        return text + fmt::format(" workspace {} B at {}", compute.workspace.count, compute.workspace_offset.count);
      },
      [&](const auto& moved) { return fmt::format("{} = {} <- {}", made, ops::to_string(moved.op), given); });
}

std::string lifetime_text(const Buffer& buffer) {
  return buffer.persistent() ? "always" : fmt::format("program {} moments {}..{}", buffer.program, buffer.first, buffer.last);
}

void print_call(const RankClass& rank_class, const Procedure& procedure, const Call& call, std::string& text) {
  std::string bindings;
  for (BufferId id : call.bindings) bindings += (bindings.empty() ? "" : ", ") + rank_class.buffers[id].name;
  std::string tokens;
  for (TokenId token : call.waits) tokens += fmt::format(" waits {}", token.index);
  if (call.signals.valid()) tokens += fmt::format(" signals {}", call.signals.index);
  text += fmt::format("    {} {}@{} = {}({}){}\n", call.moment, call.label, call.micro_batch, procedure.name, bindings, tokens);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string cadence_text(const Cadence& cadence) {
  if (cadence == Cadence{}) return {};
  if (cadence.when == Cadence::When::ahead) return ", ahead of programs that read what it writes";
  if (cadence.when == Cadence::When::behind) return ", behind programs that write what it reads";
  return cadence.every == 1 ? fmt::format(", {} steps", name_of(cadence.when))
                            : fmt::format(", {} every {} steps", name_of(cadence.when), cadence.every);
}

std::string touches_text(const RankClass& rank_class, const Touches& touches) {
  std::string text;
  for (const auto& [word, ids] : {std::pair{"reads", &touches.reads}, {"writes", &touches.writes}}) {
    if (ids->empty()) continue;
    std::string names;
    for (const BufferId id : *ids) names += (names.empty() ? "" : ", ") + rank_class.buffers[id].name;
    text += fmt::format("   {} {}\n", word, names);
  }
  return text;
}

// Parts of axes follow from these but for how wide they are; who has the outer part has the inner one.
std::string mesh_text(const Mesh& mesh) {
  const auto extent_text = [&](const ops::Axis& axis) { return fmt::format(" {} {}", axis.name(), mesh.extent(axis)); };
  std::string text = "mesh" + extent_text(ops::Axis::pipe) + extent_text(ops::Axis::data) + extent_text(ops::Axis::tensor);
  for (const ops::Axis& inner : {ops::Axis::data_inner, ops::Axis::tensor_inner}) {
    if (mesh.extent(inner) > 1) text += extent_text(inner);
  }
  for (const MeshAxis& entry : mesh.table()) {
    if (ops::known_axis(entry.row.axis) == nullptr) text += extent_text(entry.row.axis);
  }
  text += '\n';
  for (std::int32_t place = 0; !mesh.even() && place < mesh.extent(ops::Axis::pipe); ++place) {
    text += fmt::format("  place of data {} tensor {}\n", mesh.extent_at(ops::Axis::data, place), mesh.extent_at(ops::Axis::tensor, place));
  }
  return text;
}

std::string state_text(const ops::State& state) {
  if (!state.declared()) return {};
  return fmt::format(", cut {}, merge {}, written {}, starts at {}", ops::name_of(state.cut), ops::name_of(state.merge),
                     ops::name_of(state.written), state.start);
}

}  // namespace

std::string to_string(const Procedure& procedure) {
  std::string text = fmt::format("procedure {} frame {} B\n", procedure.name, procedure.frame.count);
  for (const Slot& slot : procedure.slots)
    text += fmt::format("  slot {} {} {}\n", slot.name, base::to_string(slot.type), name_of(slot.access));
  for (const Temporary& temporary : procedure.temporaries) {
    text += fmt::format("  temporary %{} {} at {}\n", temporary.name, base::to_string(temporary.type), temporary.offset.count);
  }
  for (const Instruction& instruction : procedure.instructions) text += fmt::format("  {}\n", instruction_text(procedure, instruction));
  return text;
}

std::string to_string(const Plan& plan) {
  std::string text = fmt::format("plan for {}\nstrategy {}\n", plan.model, plan.strategy);
  for (const std::string& note : plan.notes) text += fmt::format("note {}\n", note);
  text += fmt::format("threads {}\n{}", plan.threads, mesh_text(plan.mesh));
  for (const Procedure& procedure : plan.procedures) text += to_string(procedure);
  for (const RankClass& rank_class : plan.classes) {
    text += fmt::format("class {} of {} rank{}{}\n", rank_class.name, rank_class.ranks.size(), rank_class.ranks.size() == 1 ? "" : "s",
                        rank_class.role.empty() ? "" : fmt::format(", role {}", rank_class.role));
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      if (rank_class.arena[tier].count > 0)
        text += fmt::format("  arena {} {} B\n", name_of(static_cast<Tier>(tier)), rank_class.arena[tier].count);
    }
    for (const Buffer& buffer : rank_class.buffers) {
      text += fmt::format("  buffer {} {} {} at {} in {}, {}{}\n", buffer.name, name_of(buffer.kind), base::to_string(buffer.type),
                          buffer.offset.count, name_of(buffer.tier), lifetime_text(buffer), state_text(buffer.state));
    }
    for (const Program& program : rank_class.programs) {
      text += fmt::format("  program {} of {} micro-batch{}{}\n", program.name, program.micro_batches,
                          program.micro_batches == 1 ? "" : "es", cadence_text(program.cadence));
      if (program.touches) text += touches_text(rank_class, *program.touches);
      for (const Stream& stream : program.streams) {
        text += fmt::format("   stream {}\n", name_of(stream.kind));
        for (const Call& call : stream.calls) print_call(rank_class, plan.procedures[program.procedure_of(call)], call, text);
      }
    }
  }
  return text;
}

// The ends that agree are skipped; what lies between is aligned by longest common subsequence where that is affordable.
std::vector<std::string> diff(const Plan& before, const Plan& after) {
  std::vector<std::string> a = lines_of(to_string(before));
  std::vector<std::string> b = lines_of(to_string(after));
  std::size_t head = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  while (a.size() > head && b.size() > head && a.back() == b.back()) {
    a.pop_back();
    b.pop_back();
  }
  const std::size_t rows = a.size() - head;
  const std::size_t columns = b.size() - head;
  constexpr std::size_t kAffordable = 25'000'000;
  std::vector<std::string> lines;
  if (rows * columns > kAffordable) {
    for (std::size_t i = head; i < a.size(); ++i) lines.push_back("- " + a[i]);
    for (std::size_t j = head; j < b.size(); ++j) lines.push_back("+ " + b[j]);
    return lines;
  }
  std::vector<std::uint32_t> common((rows + 1) * (columns + 1), 0);
  const auto at = [&](std::size_t i, std::size_t j) -> std::uint32_t& { return common[i * (columns + 1) + j]; };
  for (std::size_t i = rows; i-- > 0;) {
    for (std::size_t j = columns; j-- > 0;) {
      at(i, j) = a[head + i] == b[head + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
    }
  }
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < rows || j < columns) {
    if (i < rows && j < columns && a[head + i] == b[head + j]) {
      ++i;
      ++j;
    } else if (j == columns || (i < rows && at(i + 1, j) >= at(i, j + 1))) {
      lines.push_back("- " + a[head + i++]);
    } else {
      lines.push_back("+ " + b[head + j++]);
    }
  }
  return lines;
}

}  // namespace plimsoll::plan

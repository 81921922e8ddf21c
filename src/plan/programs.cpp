#include "plan/programs.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "plan/instructions.h"

namespace plimsoll::plan {

namespace {

// Its turn comes with those of others.
bool serves(const Program& program) {
  return program.cadence.when == Cadence::When::ahead || program.cadence.when == Cadence::When::behind;
}

Touches said_or_found(const Plan& plan, const RankClass& rank_class, const Program& program) {
  return program.touches ? *program.touches : touches_of(plan, rank_class, program);
}

struct SlotUses {
  std::set<std::uint32_t> read;
  std::set<std::uint32_t> written;
};

SlotUses uses_of(const Procedure& procedure) {
  SlotUses uses;
  const auto note = [](std::span<const Operand> operands, std::set<std::uint32_t>& slots) {
    for (const Operand& operand : operands) {
      if (operand.kind == Operand::Kind::slot) slots.insert(operand.index);
    }
  };
  for (const Instruction& instruction : procedure.instructions) {
    const Operands operands = operands_of(instruction);
    note(operands.inputs, uses.read);
    note(operands.outputs, uses.written);
  }
  return uses;
}

bool meet(const std::vector<BufferId>& a, const std::vector<BufferId>& b) {
  return std::any_of(a.begin(), a.end(), [&](BufferId id) { return std::binary_search(b.begin(), b.end(), id); });
}

}  // namespace

Touches touches_of(const Plan& plan, const RankClass& rank_class, const Program& program) {
  std::vector<bool> reads(rank_class.buffers.size(), false);
  std::vector<bool> writes(rank_class.buffers.size(), false);
  std::map<ProcedureId, SlotUses> uses;  // micro-batches call the same
  for (const Stream& stream : program.streams) {
    for (const Call& call : stream.calls) {
      const ProcedureId procedure = program.procedure_of(call);
      if (procedure.index >= plan.procedures.size()) continue;  // verify tells
      const auto [found, fresh] = uses.try_emplace(procedure);
      if (fresh) found->second = uses_of(plan.procedures[procedure]);
      const auto note = [&](const std::set<std::uint32_t>& slots, std::vector<bool>& buffers) {
        for (const std::uint32_t slot : slots) {
          if (slot < call.bindings.size() && call.bindings[slot].index < buffers.size()) buffers[call.bindings[slot].index] = true;
        }
      };
      note(found->second.read, reads);
      note(found->second.written, writes);
    }
  }
  Touches touches;
  for (std::uint32_t index = 0; index < rank_class.buffers.size(); ++index) {
    if (!rank_class.buffers[BufferId{index}].persistent()) continue;
    if (reads[index]) touches.reads.push_back({index});
    if (writes[index]) touches.writes.push_back({index});
  }
  return touches;
}

Around around(const Plan& plan, std::string_view program) {
  using When = Cadence::When;
  Around found;
  const auto add = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const RankClass& rank_class : plan.classes) {
    const Program* own = find_program(rank_class, program);
    const bool served = std::any_of(rank_class.programs.begin(), rank_class.programs.end(), serves);
    if (own == nullptr || serves(*own) || !served) continue;
    const Touches here = said_or_found(plan, rank_class, *own);
    for (const Program& other : rank_class.programs) {
      if (!serves(other)) continue;
      const Touches there = said_or_found(plan, rank_class, other);
      if (other.cadence.when == When::behind && meet(there.reads, here.writes)) add(found.behind, other.name);
      const bool itself = std::includes(here.reads.begin(), here.reads.end(), there.reads.begin(), there.reads.end());
      if (other.cadence.when == When::ahead && meet(there.writes, here.reads) && !itself) add(found.ahead, other.name);
    }
  }
  return found;
}

}  // namespace plimsoll::plan

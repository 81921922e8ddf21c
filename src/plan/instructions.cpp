#include "plan/instructions.h"

#include "base/error.h"
#include "ops/definition.h"

namespace plimsoll::plan {

Operands operands_of(const Instruction& instruction) {
  return match(
      instruction, [](const Copy& copy) { return Operands{{&copy.from, 1}, {&copy.to, 1}}; },
      [](const auto& other) { return Operands{other.inputs, other.outputs}; });
}

std::vector<TensorType> types_of(std::span<const Operand> operands) {
  std::vector<TensorType> types;
  types.reserve(operands.size());
  for (const Operand& operand : operands) types.push_back(operand.type);
  return types;
}

Instruction instruction_for(const ops::Op& op, std::vector<Operand> inputs, std::vector<Operand> outputs) {
  switch (ops::definition_of(op).runs) {
    case ops::Runs::collective: return Collective{std::get<ops::Collective>(op), std::move(inputs), std::move(outputs)};
    case ops::Runs::message: return Message{std::get<ops::Message>(op), std::move(inputs), std::move(outputs)};
    case ops::Runs::row_copy: return RowCopy{std::get<ops::MoveRows>(op), std::move(inputs), std::move(outputs)};
    case ops::Runs::copy: return Copy{std::get<ops::Move>(op), inputs.at(0), outputs.at(0)};
    case ops::Runs::compute: return Compute{.op = op, .kernel = {}, .inputs = std::move(inputs), .outputs = std::move(outputs)};
    case ops::Runs::nothing: break;
  }
  PLIMSOLL_CHECK(false, "[{}] is another look at memory, which nothing runs", ops::name_of(op));
}

}  // namespace plimsoll::plan

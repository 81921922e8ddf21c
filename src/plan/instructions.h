// The one way into the closed variant of instructions: whoever works on them gives a case for each kind, so that a new kind does not
// compile until everybody says what becomes of it.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/overloads.h"
#include "plan/plan.h"

namespace plimsoll::plan {

using base::kIgnoreOthers;

template <typename... Cases>
decltype(auto) match(const Instruction& instruction, Cases&&... cases) {
  return std::visit(base::Overloads{std::forward<Cases>(cases)...}, instruction);
}

// Every instruction of a program, call by call and stream by stream, for cases that take (call, instruction).
template <typename... Cases>
void match_all(const Plan& plan, const Program& program, Cases&&... cases) {
  const base::Overloads overloads{std::forward<Cases>(cases)...};
  for (const Stream& stream : program.streams) {
    for (const Call& call : stream.calls) {
      for (const Instruction& instruction : plan.procedures[program.procedure_of(call)].instructions)
        std::visit([&](const auto& each) { overloads(call, each); }, instruction);
    }
  }
}

struct Operands {
  std::span<const Operand> inputs;
  std::span<const Operand> outputs;
};
Operands operands_of(const Instruction& instruction);
std::vector<TensorType> types_of(std::span<const Operand> operands);

// The instruction that an operator is run by; of a computation, without kernel and workspace.
Instruction instruction_for(const ops::Op& op, std::vector<Operand> inputs, std::vector<Operand> outputs);

}  // namespace plimsoll::plan

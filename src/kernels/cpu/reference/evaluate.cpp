#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

[[noreturn]] void not_a_kernel(std::string_view op) { PLIMSOLL_CHECK(false, "[{}] is done by the executor, not by a kernel", op); }

}  // namespace

Results compute(const ops::View& op, Operands) { not_a_kernel(op.kName); }
Results compute(const ops::Slice& op, Operands) { not_a_kernel(op.kName); }
Results compute(const ops::OwnShard& op, Operands) { not_a_kernel(op.kName); }
Results compute(const ops::Collective& op, Operands) { not_a_kernel(op.kName); }
Results compute(const ops::Message& op, Operands) { not_a_kernel(op.kName); }
Results compute(const ops::Move& op, Operands) { not_a_kernel(op.kName); }
Results compute(const ops::MoveRows& op, Operands) { not_a_kernel(op.kName); }

Results evaluate(const ops::Op& op, Operands operands) {
  return std::visit([&](const auto& attributes) { return compute(attributes, operands); }, op);
}

}  // namespace plimsoll::kernels::cpu::reference

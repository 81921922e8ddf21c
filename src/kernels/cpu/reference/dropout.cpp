// dropout, residual, subtract.
#include "kernels/cpu/reference/dropout.h"

#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

Results compute(const ops::Dropout& op, Operands operands) {
  RefTensor y = tensor(operands[0]);
  DropoutSite(op.rate, op.site, tensor(operands[1]), scalars(operands[2])).apply(op, y);
  return {std::move(y)};
}

Results compute(const ops::Residual& op, Operands operands) {
  RefTensor sum = tensor(operands[1]);
  if (op.rate > 0.0) DropoutSite(op.rate, op.site, tensor(operands[2]), scalars(operands[3])).apply(op, sum);
  add_to(sum, tensor(operands[0]));
  return {std::move(sum)};
}

Results compute(const ops::Subtract& op, Operands operands) {
  RefTensor dropped = tensor(operands[1]);
  if (op.rate > 0.0) DropoutSite(op.rate, op.site, tensor(operands[2]), scalars(operands[3])).apply(op, dropped);
  RefTensor left = tensor(operands[0]);
  for (std::int64_t e = 0; e < left.elements(); ++e) left[e] -= dropped[e];
  return {std::move(left)};
}

}  // namespace plimsoll::kernels::cpu::reference

// Sums of parts, and feedback of what a codec lost.
#include <cmath>

#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/convert.h"

namespace plimsoll::kernels::cpu::reference {

// The error belongs to what is sent, so sums and differences are those of f32 here too.
Results compute(const ops::AddError&, Operands operands) {
  const double scale = scalars(operands[0]).loss_scale;
  RefTensor z = tensor(operands[1]);
  const RefTensor& error = tensor(operands[2]);
  for (std::int64_t e = 0; e < error.elements(); ++e) z[e] = rounded(z[e] + scale * error[e], base::DType::f32);
  return {std::move(z)};
}

Results compute(const ops::KeepError&, Operands operands) {
  const double scale = scalars(operands[0]).loss_scale;
  RefTensor error = tensor(operands[3]);
  for (std::int64_t e = 0; e < error.elements(); ++e) {
    const double lost = rounded(tensor(operands[1])[e] - tensor(operands[2])[e], base::DType::f32) / scale;
    error[e] = std::isfinite(lost) ? lost : 0.0;
  }
  return {std::move(error)};
}

Results compute(const ops::UndoSkipped&, Operands operands) { return {tensor(operands[scalars(operands[0]).skip != 0 ? 2 : 1])}; }

Results compute(const ops::SumParts& op, Operands operands) {
  const RefTensor& x = tensor(operands[0]);
  RefTensor sum(base::Shape{x.elements() / op.members});
  for (std::int64_t e = 0; e < x.elements(); ++e) sum[e % sum.elements()] = rounded(sum[e % sum.elements()] + x[e], base::DType::f32);
  return {std::move(sum)};
}

}  // namespace plimsoll::kernels::cpu::reference

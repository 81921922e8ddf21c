// Operators that remember.
#include <cmath>

#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/convert.h"

namespace plimsoll::kernels::cpu::reference {

Results compute(const ops::RunningMean& op, Operands operands) {
  const RefTensor& x = tensor(operands[0]);
  RefTensor mean = tensor(operands[1]);
  for (std::int64_t column = 0; column < x.columns(); ++column) {
    double sum = 0.0;
    for (std::int64_t row = 0; row < x.rows(); ++row) sum += x.at(row, column);
    mean[column] = (1.0 - op.momentum) * mean[column] + op.momentum * sum / static_cast<double>(x.rows());
  }
  return {std::move(mean)};
}

// The error belongs to what is rounded, so the sum is one in f32 here too.
Results compute(const ops::RoundWithError& op, Operands operands) {
  RefTensor result = tensor(operands[0]);
  RefTensor error = tensor(operands[1]);
  for (std::int64_t e = 0; e < result.elements(); ++e) {
    const double z = rounded(result[e] + error[e], base::DType::f32);
    result[e] = rounded(z, op.dtype);
    error[e] = std::isfinite(result[e]) ? z - result[e] : 0.0;
  }
  return {std::move(result), std::move(error)};
}

}  // namespace plimsoll::kernels::cpu::reference

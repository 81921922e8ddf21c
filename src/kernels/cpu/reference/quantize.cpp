// 8-bit operands and their products.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/reference/activation.h"
#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/convert.h"
#include "ops/scaling.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

// NaN and infinities are larger than everything.
double largest_magnitude(const RefTensor& values) {
  double largest = 0.0;
  for (const double value : values.values) {
    if (!std::isfinite(value)) return INFINITY;
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

double within(double value, base::DType dtype) {
  const double largest = std::ldexp(1.75, ops::largest_exponent(dtype));
  return std::isnan(value) ? value : std::clamp(value, -largest, largest);
}

}  // namespace

Results compute(const ops::Quantize& op, Operands operands) {
  Reader reader(operands);
  RefTensor q = reader.next_tensor();
  const RefTensor* pre = op.slopes ? &reader.next_tensor() : nullptr;
  for (std::int64_t e = 0; e < q.elements() && op.activation != ops::ActivationKind::none; ++e)
    q[e] = pre != nullptr ? q[e] * activation_slope(op.activation, (*pre)[e]) : activation(op.activation, q[e]);
  const double amax = largest_magnitude(q);
  const double before = op.history > 0 ? largest_magnitude(reader.next_tensor()) : 0.0;
  const double scale = ops::scale_for(static_cast<float>(before > 0.0 ? before : amax), op.dtype);
  RefTensor sums(base::Shape{q.columns()});
  if (op.accumulate) sums = reader.next_tensor();
  RefTensor transposed(base::Shape{q.columns(), q.rows()});
  for (std::int64_t row = 0; row < q.rows(); ++row) {
    for (std::int64_t column = 0; column < q.columns(); ++column) {
      double& value = q.at(row, column);
      sums[column] += value;
      value = rounded(within(value / scale, op.dtype), op.dtype);
      transposed.at(column, row) = value;
    }
  }
  Results results{std::move(q), std::move(transposed), RefTensor(base::Shape{1}, {scale}), RefTensor(base::Shape{1}, {amax})};
  if (op.sums) results.push_back(std::move(sums));
  return results;
}

Results compute(const ops::NoteAmax&, Operands operands) {
  RefTensor history = tensor(operands[0]);
  std::rotate(history.values.begin(), history.values.begin() + 1, history.values.end());
  history.values.back() = largest_magnitude(tensor(operands[1]));
  return {std::move(history)};
}

Results compute(const ops::ScaledLinear& op, Operands operands) {
  const RefTensor& a = tensor(operands[0]);
  const RefTensor& b = tensor(operands[1]);
  const double scale = tensor(operands[2])[0] * tensor(operands[3])[0];
  RefTensor y(with_last(a.shape, b.rows()));
  for (std::int64_t row = 0; row < a.rows(); ++row) {
    for (std::int64_t n = 0; n < b.rows(); ++n) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < b.columns(); ++k) sum += a.at(row, k) * b.at(n, k);
      y.at(row, n) = sum * scale + (op.bias ? tensor(operands[4])[n] : 0.0);
    }
  }
  if (op.accumulate) add_to(y, tensor(operands[op.bias ? 5 : 4]));
  return {std::move(y)};
}

}  // namespace plimsoll::kernels::cpu::reference

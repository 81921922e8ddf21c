// activation, gate, add, cast.
#include <cmath>
#include <numbers>

#include "kernels/cpu/reference/activation.h"
#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

using ops::ActivationKind;

constexpr double kGeluCubic = 0.044715;
constexpr double kGeluScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi); }

}  // namespace

double activation(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::none: return x;
    case ActivationKind::gelu_tanh: return 0.5 * x * (1.0 + std::tanh(kGeluScale * (x + kGeluCubic * x * x * x)));
    case ActivationKind::gelu_erf: return x * normal_cdf(x);
    case ActivationKind::relu: return x > 0.0 ? x : 0.0;
    case ActivationKind::silu: return x * sigmoid(x);
  }
  PLIMSOLL_CHECK(false, "activation {}", static_cast<int>(kind));
}

double activation_slope(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::none: return 1.0;
    case ActivationKind::gelu_tanh: {
      const double t = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
      return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * kGeluScale * (1.0 + 3.0 * kGeluCubic * x * x);
    }
    case ActivationKind::gelu_erf: return normal_cdf(x) + x * normal_density(x);
    case ActivationKind::relu: return x > 0.0 ? 1.0 : 0.0;
    case ActivationKind::silu: return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)));
  }
  PLIMSOLL_CHECK(false, "activation {}", static_cast<int>(kind));
}

double activation_curve(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::none:
    case ActivationKind::relu: return 0.0;
    case ActivationKind::gelu_tanh: {
      const double t = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
      const double slope = kGeluScale * (1.0 + 3.0 * kGeluCubic * x * x);
      const double curve = 6.0 * kGeluScale * kGeluCubic * x;
      return (1.0 - t * t) * (slope + 0.5 * x * (curve - 2.0 * t * slope * slope));
    }
    case ActivationKind::gelu_erf: return normal_density(x) * (2.0 - x * x);
    case ActivationKind::silu: {
      const double s = sigmoid(x);
      return s * (1.0 - s) * (2.0 + x * (1.0 - 2.0 * s));
    }
  }
  PLIMSOLL_CHECK(false, "activation {}", static_cast<int>(kind));
}

Results compute(const ops::Activation& op, Operands operands) {
  RefTensor y = tensor(operands[0]);
  for (double& value : y.values) value = activation(op.kind, value);
  return {std::move(y)};
}

Results compute(const ops::ActivationGrad& op, Operands operands) {
  RefTensor dx = tensor(operands[0]);
  const RefTensor& x = tensor(operands[1]);
  for (std::int64_t e = 0; e < dx.elements(); ++e) dx[e] *= activation_slope(op.kind, x[e]);
  return {std::move(dx)};
}

Results compute(const ops::Gate& op, Operands operands) {
  const RefTensor& x = tensor(operands[0]);
  RefTensor y(with_last(x.shape, x.columns() / 2));
  for (std::int64_t e = 0; e < y.elements(); ++e) y[e] = activation(op.kind, x[2 * e]) * x[2 * e + 1];
  return {std::move(y)};
}

Results compute(const ops::GateGrad& op, Operands operands) {
  const RefTensor& dy = tensor(operands[0]);
  const RefTensor& x = tensor(operands[1]);
  RefTensor dx(x.shape);
  for (std::int64_t e = 0; e < dy.elements(); ++e) {
    dx[2 * e] = dy[e] * activation_slope(op.kind, x[2 * e]) * x[2 * e + 1];
    dx[2 * e + 1] = dy[e] * activation(op.kind, x[2 * e]);
  }
  return {std::move(dx)};
}

Results compute(const ops::ActivationGradGrad& op, Operands operands) {
  RefTensor ddy = tensor(operands[0]);
  const RefTensor& dy = tensor(operands[1]);
  const RefTensor& x = tensor(operands[2]);
  RefTensor dx(x.shape);
  for (std::int64_t e = 0; e < x.elements(); ++e) {
    dx[e] = ddy[e] * dy[e] * activation_curve(op.kind, x[e]);
    ddy[e] *= activation_slope(op.kind, x[e]);
  }
  return {std::move(ddy), std::move(dx)};
}

// dx = (dy * up * f'(gate), dy * f(gate)), pair by pair.
Results compute(const ops::GateGradGrad& op, Operands operands) {
  const RefTensor& arrived = tensor(operands[0]);
  const RefTensor& dy = tensor(operands[1]);
  const RefTensor& x = tensor(operands[2]);
  RefTensor ddy(dy.shape);
  RefTensor dx(x.shape);
  for (std::int64_t e = 0; e < dy.elements(); ++e) {
    const double gate = x[2 * e];
    const double up = x[2 * e + 1];
    const double slope = activation_slope(op.kind, gate);
    ddy[e] = arrived[2 * e] * up * slope + arrived[2 * e + 1] * activation(op.kind, gate);
    dx[2 * e] = dy[e] * (arrived[2 * e] * up * activation_curve(op.kind, gate) + arrived[2 * e + 1] * slope);
    dx[2 * e + 1] = dy[e] * arrived[2 * e] * slope;
  }
  return {std::move(ddy), std::move(dx)};
}

Results compute(const ops::Add&, Operands operands) {
  RefTensor sum = tensor(operands[0]);
  add_to(sum, tensor(operands[1]));
  return {std::move(sum)};
}

Results compute(const ops::TakeColumns& op, Operands operands) {
  const RefTensor& x = tensor(operands[0]);
  RefTensor y(with_last(x.shape, op.count));
  for (std::int64_t row = 0; row < y.rows(); ++row) {
    for (std::int64_t column = 0; column < op.count; ++column) y.at(row, column) = x.at(row, op.first + column);
  }
  return {std::move(y)};
}

Results compute(const ops::PutPart& op, Operands operands) {
  const RefTensor& part = tensor(operands[0]);
  base::Shape shape = part.shape;
  shape.set(op.part.dim, op.part.extent);
  RefTensor whole = op.into ? tensor(operands[1]) : RefTensor(shape);
  ops::for_each_stretch(op.part, part.shape, !op.without_tail, [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
    for (std::int64_t e = 0; e < count; ++e) whole[in_whole + e] = part[in_part + e];
  });
  return {std::move(whole)};
}

Results compute(const ops::TakePart& op, Operands operands) {
  const RefTensor& whole = tensor(operands[0]);
  base::Shape shape = whole.shape;
  shape.set(op.part.dim, op.part.count + op.part.tail);
  RefTensor part(shape);
  ops::for_each_stretch(op.part, shape, true, [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
    for (std::int64_t e = 0; e < count; ++e) part[in_part + e] = whole[in_whole + e];
  });
  return {std::move(part)};
}

Results compute(const ops::PutColumns& op, Operands operands) {
  const RefTensor& x = tensor(operands[0]);
  RefTensor y = operands.size() > 1 ? tensor(operands[1]) : RefTensor(with_last(x.shape, op.columns));
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t column = 0; column < x.columns(); ++column) y.at(row, op.first + column) = x.at(row, column);
  }
  return {std::move(y)};
}

Results compute(const ops::Pad& op, Operands operands) {
  RefTensor y = tensor(operands[0]);
  for (std::int64_t e = op.valid; e < y.elements(); ++e) y[e] = 0.0;
  return {std::move(y)};
}

Results compute(const ops::Accumulate& op, Operands operands) {
  RefTensor sum = tensor(operands[0]);
  if (op.accumulate) add_to(sum, tensor(operands[1]));
  return {std::move(sum)};
}

// The change of element type is the rounding of the result.
Results compute(const ops::Cast&, Operands operands) { return {tensor(operands[0])}; }

}  // namespace plimsoll::kernels::cpu::reference

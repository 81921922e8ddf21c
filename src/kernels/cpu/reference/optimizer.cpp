// adam_update, sgd_update. What is stored in bf16 is rounded to nearest, the mean of what rounding at random gives.
#include <cmath>

#include "base/dtype.h"
#include "kernels/cpu/reference/compute.h"
#include "ops/forms/bf16.h"
#include "ops/forms/random_rounding.h"
#include "ops/forms/split.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

// Halves of f32 numbers; v has its signs for them.
void join(RefTensor& weight, const RefTensor& low, RefTensor& v) {
  for (std::int64_t e = 0; e < weight.elements(); ++e) {
    weight[e] = static_cast<double>(ops::joined({.high = base::bf16_from_f32(static_cast<float>(weight[e])),
                                                 .low = static_cast<std::uint16_t>(low[e]),
                                                 .down = std::signbit(v[e])}));
    v[e] = std::abs(v[e]);
  }
}

void split(RefTensor& weight, RefTensor& low, RefTensor& v) {
  for (std::int64_t e = 0; e < weight.elements(); ++e) {
    const ops::SplitNumber number = ops::split_number(static_cast<float>(weight[e]));
    weight[e] = static_cast<double>(base::f32_from_bf16(number.high));
    low[e] = static_cast<double>(number.low);
    if (number.down) v[e] = -v[e];
  }
}

}  // namespace

Results compute(const ops::AdamUpdate& op, Operands operands) {
  const ops::StepScalars& step = scalars(operands[0]);
  if (step.skip != 0) return Results(operands.begin() + 2, operands.end());
  const RefTensor& gradient = tensor(operands[1]);
  RefTensor weight = tensor(operands[2]);
  RefTensor m = tensor(operands[3]);
  RefTensor v = tensor(operands[4]);
  RefTensor low = op.split ? tensor(operands[5]) : RefTensor();
  if (op.split) join(weight, low, v);
  const auto t = static_cast<double>(step.updates + 1);
  const double correction1 = 1.0 - std::pow(op.beta1, t);
  const double correction2 = 1.0 - std::pow(op.beta2, t);
  for (std::int64_t e = 0; e < weight.elements(); ++e) {
    double g = gradient[e] * static_cast<double>(step.gradient_multiplier);
    if (!op.decoupled) g += op.weight_decay * weight[e];
    m[e] = op.beta1 * m[e] + (1.0 - op.beta1) * g;
    v[e] = op.beta2 * v[e] + (1.0 - op.beta2) * g * g;
    double direction = m[e] / correction1 / (std::sqrt(v[e] / correction2) + op.eps);
    if (op.decoupled) direction += op.weight_decay * weight[e];
    weight[e] -= static_cast<double>(step.learning_rate) * direction;
  }
  if (op.split) split(weight, low, v);
  Results results{weight, std::move(m), std::move(v)};
  if (op.split) results.emplace_back(std::move(low));
  if (op.copy) results.emplace_back(std::move(weight));
  return results;
}

Results compute(const ops::SgdUpdate& op, Operands operands) {
  const ops::StepScalars& step = scalars(operands[0]);
  if (step.skip != 0) return Results(operands.begin() + 2, operands.end());
  const bool with_velocity = op.momentum != 0.0;
  const RefTensor& gradient = tensor(operands[1]);
  RefTensor weight = tensor(operands[2]);
  RefTensor velocity = with_velocity ? tensor(operands[3]) : RefTensor(weight.shape);
  for (std::int64_t e = 0; e < weight.elements(); ++e) {
    const double g = gradient[e] * static_cast<double>(step.gradient_multiplier) + op.weight_decay * weight[e];
    velocity[e] = op.momentum * velocity[e] + g;
    weight[e] -= static_cast<double>(step.learning_rate) * velocity[e];
  }
  Results results;
  results.push_back(weight);
  if (with_velocity) results.push_back(std::move(velocity));
  if (op.copy) results.push_back(std::move(weight));
  return results;
}

}  // namespace plimsoll::kernels::cpu::reference

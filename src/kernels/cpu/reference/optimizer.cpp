// adam_update, sgd_update.
#include <cmath>

#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

Results compute(const ops::AdamUpdate& op, Operands operands) {
  const ops::StepScalars& step = scalars(operands[0]);
  if (step.skip != 0) return Results(operands.begin() + 2, operands.end());
  const RefTensor& gradient = tensor(operands[1]);
  RefTensor weight = tensor(operands[2]);
  RefTensor m = tensor(operands[3]);
  RefTensor v = tensor(operands[4]);
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
  Results results{weight, std::move(m), std::move(v)};
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

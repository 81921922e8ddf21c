// The operators on the step scalars, and the sums they hold.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

// Adds term(element) of a tensor block by block: a block's sum is one f32, the sum of blocks is exact.
template <typename Term>
void add_blocks(base::ExactSum& sum, const RefTensor& x, Term&& term) {
  for (std::int64_t first = 0; first < x.elements(); first += ops::kSumBlock) {
    double block = 0.0;
    for (std::int64_t e = first; e < std::min(first + ops::kSumBlock, x.elements()); ++e) block += term(x[e]);
    sum.add(static_cast<float>(block));
  }
}

}  // namespace

Results compute(const ops::BeginStep&, Operands operands) {
  ops::StepScalars step = scalars(operands[0]);
  step.squared_norm = {};
  step.loss = {};
  step.gradient_norm = 0.0f;
  step.gradient_multiplier = 1.0f;
  step.skip = 0;
  step.rows_wanted = 0;
  return {step};
}

Results compute(const ops::CheckRows& op, Operands operands) {
  ops::StepScalars step = scalars(operands[0]);
  const auto count = static_cast<std::int32_t>(tensor(operands[1])[0]);
  if (count > op.bound) step.rows_wanted = std::max(step.rows_wanted, count);
  return {step};
}

Results compute(const ops::SumLoss&, Operands operands) {
  ops::StepScalars step = scalars(operands[0]);
  add_blocks(step.loss, tensor(operands[1]), [](double loss) { return loss; });
  return {step};
}

// Of a shard the first rank's: which one a rank has is not known here.
Results compute(const ops::SquaredNorm& op, Operands operands) {
  ops::StepScalars step = scalars(operands[0]);
  RefTensor gradient = tensor(operands[1]);
  if (op.counted >= 0 && op.counted < gradient.elements()) {
    gradient.values.resize(static_cast<std::size_t>(op.counted));
    gradient.shape = {op.counted};
  }
  add_blocks(step.squared_norm, gradient, [](double element) { return element * element; });
  return {step};
}

Results compute(const ops::PrepareUpdate& op, Operands operands) {
  ops::StepScalars step = scalars(operands[0]);
  const double norm = std::sqrt(step.squared_norm.value()) / static_cast<double>(step.loss_scale);
  // As torch.nn.utils.clip_grad_norm_, with its 1e-6; a norm that is not a number clips nothing.
  const double factor = op.clip / (norm + 1e-6);
  const double clip_factor = op.clip > 0.0 && factor < 1.0 ? factor : 1.0;
  step.gradient_norm = static_cast<float>(norm);
  step.gradient_multiplier = static_cast<float>(clip_factor / static_cast<double>(step.loss_scale));
  step.skip = (op.check_finite && !std::isfinite(norm)) || step.rows_wanted > 0 ? 1 : 0;
  return {step};
}

Results compute(const ops::FinishStep& op, Operands operands) {
  ops::StepScalars step = scalars(operands[0]);
  if (step.skip == 0) ++step.updates;
  if (!op.dynamic) return {step};
  if (step.skip != 0) {
    step.good_steps = 0;
    if (step.hysteresis > 0) {
      --step.hysteresis;
    } else {
      step.loss_scale = std::max(step.loss_scale / 2.0f, static_cast<float>(op.minimum));
    }
  } else if (++step.good_steps >= op.window) {
    step.loss_scale *= 2.0f;
    step.good_steps = 0;
    step.hysteresis = static_cast<std::int32_t>(op.hysteresis - 1);
  }
  return {step};
}

// The others' scalars come as bytes, one number each.
Results compute(const ops::MergeScalars& op, Operands operands) {
  ops::StepScalars step = scalars(operands[0]);
  const RefTensor& bytes = tensor(operands[1]);
  if (!op.add) step.loss = {};
  if (op.norm && !op.add) step.squared_norm = {};
  for (std::int64_t member = 0; member < op.members; ++member) {
    ops::StepScalars other;
    const auto size = static_cast<std::int64_t>(sizeof other);
    for (std::int64_t byte = 0; byte < size; ++byte)
      reinterpret_cast<std::uint8_t*>(&other)[byte] = static_cast<std::uint8_t>(bytes[member * size + byte]);
    if (!op.add) step.loss += other.loss;
    if (op.norm) step.squared_norm += other.squared_norm;
    step.rows_wanted = std::max(step.rows_wanted, other.rows_wanted);
  }
  return {step};
}

Results compute(const ops::FreshScalars&, Operands) { return {ops::StepScalars{}}; }

}  // namespace plimsoll::kernels::cpu::reference

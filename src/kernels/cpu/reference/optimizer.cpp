// Updates, by the rules' own arithmetic in double. What is stored in bf16 is rounded to nearest, the mean of what rounding at random gives.
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

Results compute(const ops::Update& op, Operands operands) {
  const ops::StepScalars& step = scalars(operands[0]);
  if (step.skip != 0) {  // everything as it was; what is sent is the weight
    Results results(operands.begin() + 2, operands.end());
    if (op.sends) results.push_back(operands[2]);
    return results;
  }
  RefTensor gradient = tensor(operands[1]);
  std::vector<RefTensor> written;  // the weight, its states, its lower halves
  for (std::size_t index = 0; index < 1 + op.states() + (op.split ? 1 : 0); ++index) written.push_back(tensor(operands[2 + index]));
  RefTensor& weight = written[0];
  if (op.split) join(weight, written[op.low()], written[1 + ops::kSignState]);
  ops::RuleSpan<double> span{.gradient = gradient.values.data(), .weight = weight.values.data(), .count = weight.elements()};
  for (std::size_t index = 0; index < op.states(); ++index) span.state[index] = written[1 + index].values.data();
  op.rule->reference(op.inputs(step), span);
  if (op.split) split(weight, written[op.low()], written[1 + ops::kSignState]);
  Results results(written.begin(), written.end());
  if (op.copy || op.sends) results.emplace_back(weight);
  return results;
}

}  // namespace plimsoll::kernels::cpu::reference

// cross_entropy, its gradient, and head_loss as the linear head followed by both.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

// What a row's loss counts: as the step scalars say, or with a weight of its own.
class RowFactors {
 public:
  explicit RowFactors(const RefValue& from) {
    if (const auto* step = std::get_if<ops::StepScalars>(&from)) {
      factor_ = static_cast<double>(step->loss_scale) * static_cast<double>(step->inverse_tokens);
    } else {
      weights_ = &tensor(from);
    }
  }
  double operator[](std::int64_t row) const { return weights_ == nullptr ? factor_ : (*weights_)[row]; }

 private:
  double factor_ = 0.0;
  const RefTensor* weights_ = nullptr;
};

RefTensor logits_gradient(const RefTensor& logits, const RefTensor& targets, const RefTensor& lse, const RowFactors& factors) {
  RefTensor dlogits(logits.shape);
  for (std::int64_t row = 0; row < logits.rows(); ++row) {
    if (targets[row] < 0.0) continue;
    for (std::int64_t v = 0; v < logits.columns(); ++v) {
      const double hot = v == integer(targets[row]) ? 1.0 : 0.0;
      dlogits.at(row, v) = (std::exp(logits.at(row, v) - lse[row]) - hot) * factors[row];
    }
  }
  return dlogits;
}

}  // namespace

Results compute(const ops::CrossEntropy&, Operands operands) {
  const RefTensor& logits = tensor(operands[0]);
  const RefTensor& targets = tensor(operands[1]);
  RefTensor losses(base::Shape{logits.rows()});
  RefTensor lse(base::Shape{logits.rows()});
  for (std::int64_t row = 0; row < logits.rows(); ++row) {
    const double* values = &logits.values[static_cast<std::size_t>(row * logits.columns())];
    const double largest = *std::max_element(values, values + logits.columns());
    double sum = 0.0;
    for (std::int64_t v = 0; v < logits.columns(); ++v) sum += std::exp(values[v] - largest);
    lse[row] = largest + std::log(sum);
    PLIMSOLL_CHECK(targets[row] < static_cast<double>(logits.columns()), "target {} of {}", targets[row], logits.columns());
    if (targets[row] >= 0.0) losses[row] = lse[row] - values[integer(targets[row])];
  }
  return {std::move(losses), std::move(lse)};
}

Results compute(const ops::CrossEntropyPart&, Operands operands) {
  const RefTensor& logits = tensor(operands[0]);
  const RefTensor& targets = tensor(operands[1]);
  RefTensor stats(base::Shape{logits.rows() * 2});
  for (std::int64_t row = 0; row < logits.rows(); ++row) {
    const double* values = &logits.values[static_cast<std::size_t>(row * logits.columns())];
    const double largest = *std::max_element(values, values + logits.columns());
    double sum = 0.0;
    for (std::int64_t v = 0; v < logits.columns(); ++v) sum += std::exp(values[v] - largest);
    stats[2 * row] = largest + std::log(sum);
    const std::int64_t target = integer(targets[row]);
    if (target >= 0 && target != ops::kElsewhere) stats[2 * row + 1] = logits.at(row, target);
  }
  return {std::move(stats)};
}

Results compute(const ops::CrossEntropyMerge& op, Operands operands) {
  const RefTensor& all = tensor(operands[0]);
  const RefTensor& targets = tensor(operands[1]);
  const std::int64_t rows = targets.elements();
  RefTensor losses(base::Shape{rows});
  RefTensor lse(base::Shape{rows});
  for (std::int64_t row = 0; row < rows; ++row) {
    double largest = all[2 * row];
    for (std::int64_t member = 1; member < op.members; ++member) largest = std::max(largest, all[2 * (member * rows + row)]);
    double sum = 0.0;
    double hit = 0.0;
    for (std::int64_t member = 0; member < op.members; ++member) {
      sum += std::exp(all[2 * (member * rows + row)] - largest);
      hit += all[2 * (member * rows + row) + 1];
    }
    lse[row] = largest + std::log(sum);
    if (targets[row] >= 0.0) losses[row] = lse[row] - hit;
  }
  return {std::move(losses), std::move(lse)};
}

Results compute(const ops::CrossEntropyGrad&, Operands operands) {
  return {logits_gradient(tensor(operands[0]), tensor(operands[1]), tensor(operands[2]), RowFactors(operands[3]))};
}

// With p = softmax: dlogits = factor * p * (arrived - <p, arrived>), dweight = <p, arrived> - arrived at the target.
Results compute(const ops::CrossEntropyGradGrad& op, Operands operands) {
  const RefTensor& arrived = tensor(operands[0]);
  const RefTensor& logits = tensor(operands[1]);
  const RefTensor& targets = tensor(operands[2]);
  const RefTensor& lse = tensor(operands[3]);
  const RowFactors factors(operands[4]);
  RefTensor dlogits(logits.shape);
  RefTensor dweights(base::Shape{logits.rows()});
  for (std::int64_t row = 0; row < logits.rows(); ++row) {
    if (targets[row] < 0.0) continue;
    double mean = 0.0;
    for (std::int64_t v = 0; v < logits.columns(); ++v) {
      mean += std::exp(logits.at(row, v) - lse[row]) * arrived[row * logits.columns() + v];
    }
    for (std::int64_t v = 0; v < logits.columns(); ++v) {
      const double probability = std::exp(logits.at(row, v) - lse[row]);
      dlogits.at(row, v) = factors[row] * probability * (arrived[row * logits.columns() + v] - mean);
    }
    const std::int64_t target = integer(targets[row]);
    dweights[row] = mean - (target < logits.columns() ? arrived[row * logits.columns() + target] : 0.0);
  }
  if (!op.weighted) return {std::move(dlogits)};
  return {std::move(dlogits), std::move(dweights)};
}

Results compute(const ops::LossWeights& op, Operands operands) {
  RefTensor weights(base::Shape{op.rows});
  for (double& weight : weights.values) weight = op.factor * RowFactors(operands[0])[0];
  return {std::move(weights)};
}

Results compute(const ops::HeadLoss& op, Operands operands) {
  Reader in(operands);
  const RefTensor& x = in.next_tensor();
  const RefTensor& w = in.next_tensor();
  std::vector<RefValue> head{x, w};
  if (op.bias) head.emplace_back(in.next_tensor());
  const RefTensor& targets = in.next_tensor();
  const ops::StepScalars& step = in.next_scalars();

  const Results logits = compute(ops::Linear{.bias = op.bias}, head);
  Results losses_lse = compute(ops::CrossEntropy{}, std::vector<RefValue>{logits[0], targets});
  Results results{std::move(losses_lse[0])};
  if (!op.gradients) return results;

  const RefValue dlogits = logits_gradient(tensor(logits[0]), targets, tensor(losses_lse[1]), RowFactors(step));
  std::vector<RefValue> for_weight{dlogits, x};
  std::vector<RefValue> for_bias{dlogits};
  if (op.accumulate) for_weight.emplace_back(in.next_tensor());
  if (op.accumulate && op.bias) for_bias.emplace_back(in.next_tensor());
  results.push_back(compute(ops::LinearGradInput{}, std::vector<RefValue>{dlogits, w})[0]);
  results.push_back(compute(ops::LinearGradWeight{.accumulate = op.accumulate}, for_weight)[0]);
  if (op.bias) results.push_back(compute(ops::BiasGrad{.accumulate = op.accumulate}, for_bias)[0]);
  return results;
}

}  // namespace plimsoll::kernels::cpu::reference

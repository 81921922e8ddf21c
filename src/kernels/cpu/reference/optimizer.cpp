// Updates, by the rules' own arithmetic in double. What is stored in bf16 is rounded to nearest, the mean of what rounding at random gives.
#include <algorithm>
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

// What an update keeps, widened: the weight, its states, its lower halves.
std::vector<RefTensor> kept_of(const ops::Update& op, Operands operands) {
  std::vector<RefTensor> kept;
  for (std::size_t index = 0; index < op.kept(); ++index) kept.push_back(tensor(operands[ops::Update::kFirstKept + index]));
  if (op.split) join(kept[0], kept[op.low()], kept[1 + ops::kSignState]);
  return kept;
}

ops::RuleSpan<double> span_of(const ops::Update& op, RefTensor& gradient, std::vector<RefTensor>& kept) {
  ops::RuleSpan<double> span{.gradient = gradient.values.data(), .weight = kept[0].values.data(), .count = kept[0].elements()};
  for (std::size_t index = 0; index < op.states(); ++index) span.state[index] = kept[1 + index].values.data();
  return span;
}

// A double in floats, which are added without rounding.
void add(base::ExactSum& sum, double term) {
  for (int part = 0; part < 3 && term != 0.0; ++part) {
    const auto rounded = static_cast<float>(term);
    sum.add(rounded);
    term -= static_cast<double>(rounded);
  }
}

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size(), 0.0));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix b(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) b[j][i] = a[i][j];
  }
  return b;
}

Matrix orthogonal(Matrix x, std::int64_t steps) {
  const bool tall = x.size() > x[0].size();
  if (tall) x = transposed(x);
  double squares = 0.0;
  for (const std::vector<double>& row : x) {
    for (const double value : row) squares += value * value;
  }
  const double norm = std::max(std::sqrt(squares), ops::kLeastNorm);
  for (std::vector<double>& row : x) {
    for (double& value : row) value /= norm;
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    const Matrix a = product(x, transposed(x));
    Matrix b = product(a, a);
    for (std::size_t i = 0; i < b.size(); ++i) {
      for (std::size_t j = 0; j < b.size(); ++j) b[i][j] = ops::kNewtonSchulz[1] * a[i][j] + ops::kNewtonSchulz[2] * b[i][j];
    }
    const Matrix change = product(b, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = 0; j < x[0].size(); ++j) x[i][j] = ops::kNewtonSchulz[0] * x[i][j] + change[i][j];
    }
  }
  return tall ? transposed(x) : x;
}

}  // namespace

Results compute(const ops::UpdatePrelude& op, Operands operands) {
  RefTensor gradient = tensor(operands[1]);
  std::vector<RefTensor> kept = kept_of(op.update, operands);
  ops::RuleSpan<double> span = span_of(op.update, gradient, kept);
  const ops::RuleInputs inputs = op.update.inputs(scalars(operands[0]));
  if (!op.is_sum()) {
    RefTensor made(gradient.shape);
    span.direction = made.values.data();
    op.update.rule->reference_direct(inputs, span);
    return {std::move(made)};
  }
  if (op.counted >= 0) span.count = std::min(span.count, op.counted);  // of a shard the first rank's
  ops::RuleSums found{};
  op.update.rule->reference_sums(inputs, span, found);
  ops::ParameterSums made = op.into ? sums(operands.back()) : ops::ParameterSums{};
  for (std::size_t index = 0; index < op.update.rule->sums; ++index) add(made.sum[index], found[index]);
  return {made};
}

// They come as bytes, one number each.
Results compute(const ops::MergeSums& op, Operands operands) {
  const RefTensor& bytes = tensor(operands[0]);
  ops::ParameterSums all;
  for (std::int64_t member = 0; member < op.members; ++member) {
    ops::ParameterSums one;
    const auto size = static_cast<std::int64_t>(sizeof one);
    for (std::int64_t byte = 0; byte < size; ++byte)
      reinterpret_cast<std::uint8_t*>(&one)[byte] = static_cast<std::uint8_t>(bytes[member * size + byte]);
    for (std::size_t index = 0; index < all.sum.size(); ++index) all.sum[index] += one.sum[index];
  }
  return {all};
}

Results compute(const ops::Orthogonalize& op, Operands operands) {
  const RefTensor& x = tensor(operands[0]);
  RefTensor made(x.shape);
  std::int64_t before = 0;  // rows of a unit that earlier matrices have
  for (const std::int64_t in_unit : op.rows_in_unit()) {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < x.rows(); ++row) {
      if (const std::int64_t at = row % op.unit(); at >= before && at < before + in_unit) rows.push_back(row);
    }
    Matrix part;
    for (const std::int64_t row : rows) part.emplace_back(x.values.begin() + row * x.columns(), x.values.begin() + (row + 1) * x.columns());
    part = orthogonal(std::move(part), op.steps);
    const double scale = op.scale_of(std::ssize(rows), x.columns());
    for (std::size_t index = 0; index < rows.size(); ++index) {
      for (std::int64_t column = 0; column < x.columns(); ++column)
        made.at(rows[index], column) = scale * part[index][static_cast<std::size_t>(column)];
    }
    before += in_unit;
  }
  return {std::move(made)};
}

Results compute(const ops::Update& op, Operands operands) {
  const ops::StepScalars& step = scalars(operands[0]);
  if (step.skip != 0) {  // everything as it was; what is sent is the weight
    Results results(operands.begin() + ops::Update::kFirstKept, operands.begin() + static_cast<std::ptrdiff_t>(op.prelude_operand()));
    if (op.copy) results.push_back(operands.back());
    if (op.sends) results.push_back(operands[2]);
    return results;
  }
  RefTensor gradient = tensor(operands[1]);
  std::vector<RefTensor> kept = kept_of(op, operands);
  ops::RuleSpan<double> span = span_of(op, gradient, kept);
  RefTensor direction;
  ops::RuleSums whole{};
  const bool summed = op.prelude && op.rule->prelude == ops::Prelude::sums;
  for (std::size_t index = 0; summed && index < op.rule->sums; ++index)
    whole[index] = sums(operands[op.prelude_operand()]).sum[index].value();
  if (op.prelude && !summed) {
    direction = tensor(operands[op.prelude_operand()]);
    span.direction = direction.values.data();
  }
  op.rule->reference(op.inputs(step), summed ? &whole : nullptr, span);
  if (op.split) split(kept[0], kept[op.low()], kept[1 + ops::kSignState]);
  Results results(kept.begin(), kept.end());
  if (op.copy || op.sends) results.emplace_back(kept[0]);
  return results;
}

}  // namespace plimsoll::kernels::cpu::reference

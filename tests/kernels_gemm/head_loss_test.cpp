// head_loss where its chunking shows: vocabularies so large that a chunk is a few rows, any share of rows without a
// target, numbers of targets that no chunk size divides, adding to present gradients; each kernel that takes the types.
#include <cmath>

#include "kernels_rows/harness.h"
#include "ops/op.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

struct Problem {
  std::int64_t rows, width, vocab;
  DType dtype = DType::f32;
  ops::HeadLoss op{.gradients = true};
  double kept = 1.0;  // share of rows with a target
};

struct Expected {
  std::vector<double> losses, dx, dw, dbias;
};

Expected compute(const Problem& problem, const Data& x, const Data& w, const Data* bias, Data& targets, double scale) {
  const std::int64_t rows = problem.rows, width = problem.width, vocab = problem.vocab;
  const std::vector<double> xs = doubles(x), ws = doubles(w);
  const std::vector<double> bs = bias ? doubles(*bias) : std::vector<double>(static_cast<std::size_t>(vocab));
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  Expected result{std::vector<double>(size(rows)), std::vector<double>(size(rows * width)), std::vector<double>(size(vocab * width)),
                  std::vector<double>(size(vocab))};
  std::vector<double> logits(size(vocab));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int32_t target = targets.as<std::int32_t>()[row];
    if (target < 0) continue;
    double top = -INFINITY;
    for (std::int64_t v = 0; v < vocab; ++v) {
      logits[size(v)] = bs[size(v)];
      for (std::int64_t c = 0; c < width; ++c) logits[size(v)] += xs[size(row * width + c)] * ws[size(v * width + c)];
      top = std::max(top, logits[size(v)]);
    }
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - top);
    const double lse = top + std::log(sum);
    result.losses[size(row)] = lse - logits[size(target)];
    for (std::int64_t v = 0; v < vocab; ++v) {
      const double gradient = (std::exp(logits[size(v)] - lse) - (v == target ? 1 : 0)) * scale;
      result.dbias[size(v)] += gradient;
      for (std::int64_t c = 0; c < width; ++c) {
        result.dx[size(row * width + c)] += gradient * ws[size(v * width + c)];
        result.dw[size(v * width + c)] += gradient * xs[size(row * width + c)];
      }
    }
  }
  return result;
}

// Against double, with the slack that a gradient of the logits in bf16 needs.
void check(const Kernel& kernel, const Problem& problem, int threads) {
  SCOPED_TRACE(fmt::format("{}: {} rows, width {}, vocabulary {}, {}, {}, kept {}", kernel.name, problem.rows, problem.width, problem.vocab,
                           base::name_of(problem.dtype), ops::to_string(problem.op), problem.kept));
  Data x = random_data(problem.dtype, Shape{problem.rows, problem.width}, 1);
  Data w = random_data(problem.dtype, Shape{problem.vocab, problem.width}, 2);
  Data bias = random_data(problem.dtype, Shape{problem.vocab}, 3);
  Data targets = random_ids(Shape{problem.rows}, static_cast<std::int32_t>(problem.vocab), 4);
  std::mt19937 random(5);
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    if (!std::bernoulli_distribution(problem.kept)(random)) targets.as<std::int32_t>()[row] = -1 - static_cast<std::int32_t>(row);
  }
  ops::StepScalars numbers;
  numbers.loss_scale = 4.0f;
  numbers.inverse_tokens = 1.0f / 16.0f;
  Data scalars = scalars_data(numbers);
  std::vector<Data*> inputs{&x, &w};
  if (problem.op.bias) inputs.push_back(&bias);
  inputs.push_back(&targets);
  inputs.push_back(&scalars);

  Data losses({DType::f32, Shape{problem.rows}}), dx({problem.dtype, x.type.shape});
  Data dw = random_data(problem.op.dtype, w.type.shape, 6), dbias = random_data(problem.op.dtype, bias.type.shape, 7);
  const Data dw_before = dw, dbias_before = dbias;
  std::vector<Data*> outputs{&losses};
  if (problem.op.gradients) {
    outputs.insert(outputs.end(), {&dx, &dw});
    if (problem.op.bias) outputs.push_back(&dbias);
    if (problem.op.accumulate) inputs.insert(inputs.end(), outputs.begin() + 2, outputs.end());
  }
  std::vector<TensorType> in, out;
  for (const Data* data : inputs) in.push_back(data->type);
  for (const Data* data : outputs) out.push_back(data->type);
  if (kernel.refusal({problem.op, in, out, threads})) return;  // a CPU without bf16, or other types
  call_kernel({&kernel, 1}, problem.op, inputs, outputs, threads);
  if (::testing::Test::HasFatalFailure()) return;

  Expected expected = compute(problem, x, w, problem.op.bias ? &bias : nullptr, targets, 4.0 / 16.0);
  expect_close(losses, expected.losses);
  if (!problem.op.gradients) return;
  if (problem.op.accumulate) {
    for (std::size_t i = 0; i < expected.dw.size(); ++i) expected.dw[i] += dw_before[static_cast<std::int64_t>(i)];
    for (std::size_t i = 0; i < expected.dbias.size(); ++i) expected.dbias[i] += dbias_before[static_cast<std::int64_t>(i)];
  }
  const double slack = problem.dtype == DType::f32 ? 4e-6 : 4.0 * epsilon(problem.dtype);
  expect_close(dx, expected.dx, slack);
  expect_close(dw, expected.dw, slack);
  if (problem.op.bias) expect_close(dbias, expected.dbias, slack);
}

void check_every_kernel(const Problem& problem) {
  for (const Kernel& kernel : loss_kernels()) {
    if (kernel.op != ops::HeadLoss::kName) continue;
    for (const int threads : {1, 2}) check(kernel, problem, threads);
  }
}

TEST(HeadLoss, TakesManyChunks) {
  // At this vocabulary a chunk is at most 27 rows.
  check_every_kernel({.rows = 30, .width = 2, .vocab = 600'000, .kept = 0.9});
}

TEST(HeadLoss, TakesAnyNumberOfTargets) {
  for (const double kept : {1.0, 0.5, 0.15, 0.02, 0.0}) {
    for (const DType dtype : kFloats) {
      for (const bool accumulate : {false, true}) {
        check_every_kernel({.rows = 150,
                            .width = 24,
                            .vocab = 331,
                            .dtype = dtype,
                            .op = {.bias = accumulate, .gradients = true, .dtype = DType::f32, .accumulate = accumulate},
                            .kept = kept});
      }
    }
  }
}

TEST(HeadLoss, GivesLossesAlone) {
  for (const DType dtype : kFloats)
    check_every_kernel({.rows = 37, .width = 19, .vocab = 67, .dtype = dtype, .op = {.bias = true}, .kept = 0.7});
}

TEST(HeadLoss, GivesGradientsInTheTypeAsked) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    check_every_kernel(
        {.rows = 53, .width = 32, .vocab = 97, .dtype = dtype, .op = {.bias = true, .gradients = true, .dtype = dtype}, .kept = 0.8});
  }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing

#include "kernels_rows/harness.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

using ops::StepScalars;

StepScalars run_scalars(const ops::Op& op, const StepScalars& before, Data* operand = nullptr, int threads = 1) {
  Data scalars = scalars_data(before);
  std::vector<Data*> inputs{&scalars};
  if (operand != nullptr) inputs.push_back(operand);
  call_kernel(scalar_kernels(), op, inputs, {&scalars}, threads);
  return *scalars.as<StepScalars>();
}

// The rule in scalars.cpp, one element at a time; volatile keeps compilers from fusing a square into its sum.
float block_sum(const Data& x, std::int64_t first, std::int64_t count, bool square) {
  float partials[16] = {};
  for (std::int64_t index = 0; index < count; ++index) {
    const auto value = static_cast<float>(x[first + index]);
    volatile float term = square ? value * value : value;
    volatile float sum = partials[index % 16] + term;
    partials[index % 16] = sum;
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int partial = 0; partial < half; ++partial) partials[partial] += partials[partial + half];
  }
  return partials[0];
}

base::ExactSum exact_sum(const Data& x, bool square) {
  base::ExactSum sum;
  for (std::int64_t first = 0; first < x.size(); first += ops::kSumBlock) {
    sum.add(block_sum(x, first, std::min(ops::kSumBlock, x.size() - first), square));
  }
  return sum;
}

TEST(Sums, FollowTheRuleToTheBit) {
  for (DType dtype : kFloats) {
    for (std::int64_t count : {1, 15, 16, 1000, 1024, 1025, 100003}) {
      Data x = random_data(dtype, Shape{count}, 1);
      double plain = 0.0, squares = 0.0;
      for (std::int64_t index = 0; index < count; ++index) plain += x[index], squares += x[index] * x[index];
      const auto check = [&](int threads) {
        const StepScalars after = run_scalars(ops::SquaredNorm{}, {}, &x, threads);
        EXPECT_TRUE(after.squared_norm == exact_sum(x, true)) << count;
        EXPECT_NEAR(after.squared_norm.value(), squares, 1e-6 * squares);
        const StepScalars loss = run_scalars(ops::SumLoss{}, {}, &x, threads);
        EXPECT_TRUE(loss.loss == exact_sum(x, false)) << count;
        EXPECT_NEAR(loss.loss.value(), plain, 1e-6 * squares);
      };
      for (int threads : {1, 2, 3}) check(threads);
      for_each_target([&] { check(2); });
    }
  }
}

TEST(Sums, DoNotDependOnTheSplit) {
  Data whole = random_data(DType::f32, Shape{70000}, 1);
  StepScalars parts;
  for (std::int64_t first = 0; first < 70000; first += 20480) {
    const std::int64_t count = std::min<std::int64_t>(20480, 70000 - first);
    Data part({DType::f32, Shape{count}});
    for (std::int64_t index = 0; index < count; ++index) part.set(index, whole[first + index]);
    parts = run_scalars(ops::SquaredNorm{}, parts, &part, 2);
  }
  EXPECT_EQ(parts.squared_norm.value(), run_scalars(ops::SquaredNorm{}, {}, &whole).squared_norm.value());
}

TEST(BeginStep, ForgetsSumsAndKeepsState) {
  StepScalars before = scalars_at(5, 6);
  before.loss_scale = 8.0f;
  before.updates = 3;
  before.gradient_norm = 2.0f;
  before.gradient_multiplier = 0.1f;
  before.skip = 1;
  before.squared_norm.add(3.0f);
  before.loss.add(4.0f);
  const StepScalars after = run_scalars(ops::BeginStep{}, before);
  EXPECT_EQ(after.squared_norm, base::ExactSum{});
  EXPECT_EQ(after.loss, base::ExactSum{});
  EXPECT_EQ(after.skip, 0);
  EXPECT_EQ(after.gradient_multiplier, 1.0f);
  EXPECT_EQ(after.seed, 5u);
  EXPECT_EQ(after.updates, 3);
  EXPECT_EQ(after.loss_scale, 8.0f);
}

TEST(PrepareUpdate, ClipsAndUnscales) {
  StepScalars before;
  before.loss_scale = 4.0f;
  before.squared_norm.add(64.0f);
  const StepScalars free = run_scalars(ops::PrepareUpdate{.clip = 0.0}, before);
  EXPECT_EQ(free.gradient_norm, 2.0f);
  EXPECT_EQ(free.gradient_multiplier, 0.25f);
  const StepScalars clipped = run_scalars(ops::PrepareUpdate{.clip = 1.0, .check_finite = true}, before);
  EXPECT_FLOAT_EQ(clipped.gradient_multiplier, static_cast<float>(1.0 / (2.0 + 1e-6) / 4.0));
  EXPECT_EQ(clipped.skip, 0);
  EXPECT_EQ(run_scalars(ops::PrepareUpdate{.clip = 3.0}, before).gradient_multiplier, 0.25f);
}

TEST(PrepareUpdate, SkipsWhatIsNotFiniteOnlyWhenToldTo) {
  for (float bad : {INFINITY, NAN}) {
    Data gradient = random_data(DType::f32, Shape{3000}, 1);
    gradient.set(2017, bad);
    const StepScalars summed = run_scalars(ops::SquaredNorm{}, {}, &gradient, 2);
    EXPECT_EQ(run_scalars(ops::PrepareUpdate{.clip = 1.0, .check_finite = true}, summed).skip, 1);
    const StepScalars applied = run_scalars(ops::PrepareUpdate{.clip = 1.0, .check_finite = false}, summed);
    EXPECT_EQ(applied.skip, 0);
    EXPECT_EQ(applied.gradient_multiplier, 1.0f);
  }
}

TEST(FinishStep, CountsUpdatesAndMovesTheLossScale) {
  const ops::FinishStep op{.dynamic = true, .window = 2, .hysteresis = 2, .minimum = 4.0};
  StepScalars scalars;
  scalars.loss_scale = 16.0f;
  scalars.hysteresis = 1;
  const auto step = [&](bool overflow) {
    scalars.skip = overflow ? 1 : 0;
    scalars = run_scalars(op, scalars);
  };
  step(true);
  EXPECT_EQ(scalars.loss_scale, 16.0f);  // forgiven
  step(true);
  EXPECT_EQ(scalars.loss_scale, 8.0f);
  step(true);
  step(true);
  EXPECT_EQ(scalars.loss_scale, 4.0f);  // not under the minimum
  EXPECT_EQ(scalars.updates, 0);
  step(false);
  step(false);
  EXPECT_EQ(scalars.loss_scale, 8.0f);
  EXPECT_EQ(scalars.updates, 2);
  step(true);
  EXPECT_EQ(scalars.loss_scale, 8.0f);  // a rise renews forgiveness
  scalars.skip = 0;
  scalars = run_scalars(ops::FinishStep{}, scalars);
  EXPECT_EQ(scalars.updates, 3);
  EXPECT_EQ(scalars.loss_scale, 8.0f);
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing

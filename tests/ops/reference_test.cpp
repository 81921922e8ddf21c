// The oracle itself, where a case can be worked out by hand or by other code: conversions against base's, a few
// operators against numbers found on paper.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/dtype.h"
#include "base/random.h"
#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/convert.h"
#include "support/updates.h"

namespace plimsoll::kernels::cpu::reference {
namespace {

using base::DType;

template <typename T>
T stored(double value, DType dtype) {
  T item{};
  store({base::Shape{1}, {value}}, &item, {dtype, base::Shape{1}});
  return item;
}

template <typename T>
double loaded(T item, DType dtype) {
  return load(&item, {dtype, base::Shape{1}})[0];
}

TEST(Convert, EverySixteenBitCodeIsReadAsBaseReadsItAndWrittenBack) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const auto expected = static_cast<double>(dtype == DType::bf16 ? base::f32_from_bf16(bits) : base::f32_from_f16(bits));
      const double found = loaded(bits, dtype);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(found));
        EXPECT_TRUE(std::isnan(loaded(stored<std::uint16_t>(found, dtype), dtype)));
      } else {
        ASSERT_EQ(found, expected) << code;
        ASSERT_EQ(stored<std::uint16_t>(found, dtype), bits) << code;
      }
    }
  }
}

TEST(Convert, RoundsFloatsAsBaseDoes) {
  const base::RandomKey key = base::random_key(3, 4);
  for (std::uint32_t n = 0; n < 200'000; ++n) {
    const auto value = std::bit_cast<float>(base::philox({n, 0, 0, 0}, key)[0]);
    if (std::isnan(value)) continue;
    ASSERT_EQ(stored<std::uint16_t>(static_cast<double>(value), DType::bf16), base::bf16_from_f32(value)) << value;
    ASSERT_EQ(stored<std::uint16_t>(static_cast<double>(value), DType::f16), base::f16_from_f32(value)) << value;
  }
}

TEST(Convert, EightBitFloatsKeepTheirCodesAndLimits) {
  for (std::uint32_t code = 0; code < 0x100; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
      const double value = loaded(bits, dtype);
      if (std::isnan(value)) continue;
      EXPECT_EQ(stored<std::uint8_t>(value, dtype), bits) << code;
    }
  }
  EXPECT_EQ(loaded<std::uint8_t>(0x7E, DType::f8e4m3), 448.0);
  EXPECT_TRUE(std::isnan(loaded<std::uint8_t>(0x7F, DType::f8e4m3)));
  EXPECT_EQ(loaded<std::uint8_t>(0x7B, DType::f8e5m2), 57344.0);
  EXPECT_EQ(loaded<std::uint8_t>(0x7C, DType::f8e5m2), std::numeric_limits<double>::infinity());
  EXPECT_EQ(loaded<std::uint8_t>(0x01, DType::f8e4m3), 0x1p-9);
  EXPECT_TRUE(std::isnan(rounded(1000.0, DType::f8e4m3)));
  EXPECT_EQ(rounded(1e6, DType::f8e5m2), std::numeric_limits<double>::infinity());
}

TEST(Convert, IntegersAreExact) {
  for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{1} << 40, std::int64_t{0}}) {
    EXPECT_EQ(loaded(stored<std::int64_t>(static_cast<double>(value), DType::i64), DType::i64), static_cast<double>(value));
  }
  EXPECT_EQ(loaded(stored<std::int32_t>(-2147483648.0, DType::i32), DType::i32), -2147483648.0);
  EXPECT_EQ(loaded(stored<std::uint16_t>(65535.0, DType::u16), DType::u16), 65535.0);
}

double first(const Results& results, std::size_t output = 0) { return tensor(results[output])[0]; }

TEST(ByHand, LayerNormOfOneTwoThree) {
  const std::vector<RefValue> operands{RefTensor{base::Shape{1, 3}, {1, 2, 3}}, RefTensor{base::Shape{3}, {2, 2, 2}},
                                       RefTensor{base::Shape{3}, {10, 10, 10}}};
  const Results results = evaluate(ops::Norm{.eps = 0.0, .bias = true}, operands);
  EXPECT_NEAR(first(results), 10.0 - 2.0 * std::sqrt(1.5), 1e-12);
  EXPECT_NEAR(first(results, 1), 2.0, 1e-12);
  EXPECT_NEAR(tensor(results[1])[1], std::sqrt(1.5), 1e-12);
}

TEST(ByHand, AttentionOverTwoKeys) {
  // One head of size 1: query 1, keys 0 and ln 3, values 0 and 4: probabilities 1/4 and 3/4.
  const RefTensor packed{base::Shape{1, 2, 3}, {1.0, 0.0, 0.0, 1.0, std::log(3.0), 4.0}};
  const Results causal = evaluate(ops::Attention{.heads = {1, 1, 1}}, std::vector<RefValue>{packed});
  EXPECT_NEAR(tensor(causal[0])[0], 0.0, 1e-12);
  EXPECT_NEAR(tensor(causal[0])[1], 3.0, 1e-12);
  EXPECT_NEAR(tensor(causal[1])[1], std::log(4.0), 1e-12);
  const RefTensor padded{base::Shape{1, 2}, {0, -1}};
  const Results masked = evaluate(ops::Attention{.heads = {1, 1, 1}, .segmented = true}, std::vector<RefValue>{packed, padded});
  EXPECT_EQ(tensor(masked[0])[1], 0.0);
  EXPECT_EQ(tensor(masked[1])[1], -std::numeric_limits<double>::infinity());
}

TEST(ByHand, UniformLogitsLoseTheLogarithmOfTheVocabulary) {
  const std::vector<RefValue> operands{RefTensor(base::Shape{2, 8}), RefTensor{base::Shape{2}, {3, -1}}};
  const Results results = evaluate(ops::CrossEntropy{}, operands);
  EXPECT_NEAR(tensor(results[0])[0], std::log(8.0), 1e-12);
  EXPECT_EQ(tensor(results[0])[1], 0.0);
}

TEST(ByHand, AdamsFirstStepIsTheSignOfTheGradient) {
  ops::StepScalars step;
  step.learning_rate = 0.5f;
  const auto one = [](double value) { return RefTensor{base::Shape{1}, {value}}; };
  const Results results = evaluate(tests::AdamUpdate{.eps = 0.0}, std::vector<RefValue>{step, one(-3.0), one(1.0), one(0.0), one(0.0)});
  EXPECT_NEAR(first(results), 1.5, 1e-12);
  step.skip = 1;
  EXPECT_EQ(first(evaluate(tests::AdamUpdate{}, std::vector<RefValue>{step, one(-3.0), one(1.0), one(0.0), one(0.0)})), 1.0);
}

// A parameter of length 5 goes as far as it is long times the rate, whatever the length of its gradient: 5 over that of (1, -1).
TEST(ByHand, LambsStepIsAsLongAsTheParameter) {
  ops::Update update = ops::Update::by(ops::update_rule("lamb"));
  update.numbers[2] = 0.0;  // eps
  ops::StepScalars step;
  step.learning_rate = 0.5f;
  const auto pair = [](double a, double b) { return RefTensor{base::Shape{1, 2}, {a, b}}; };
  std::vector<RefValue> operands{step, pair(0.25, -8.0), pair(3.0, 4.0), pair(0.0, 0.0), pair(0.0, 0.0)};
  const Results sums = evaluate(ops::UpdatePrelude{.update = update}, operands);
  EXPECT_NEAR(reference::sums(sums[0]).sum[0].value(), 25.0, 1e-9);
  EXPECT_NEAR(reference::sums(sums[0]).sum[1].value(), 2.0, 1e-9);
  EXPECT_NEAR(first(evaluate(update, operands)), 3.0 - 0.5, 1e-9);  // without sums every parameter counts as long as its step
  update.prelude = true;
  operands.push_back(sums[0]);
  const Results made = evaluate(update, operands);
  const double far = 0.5 * 5.0 / std::sqrt(2.0);
  EXPECT_NEAR(tensor(made[0])[0], 3.0 - far, 1e-6);
  EXPECT_NEAR(tensor(made[0])[1], 4.0 + far, 1e-6);
}

// Three updates of a 6 x 4 matrix as torch.optim.Muon 2.15 makes them (adjust_lr_fn "original" and "match_rms_adamw"), its products in
// double: as it is, with products in bf16, it is off by up to 1% of its steps.
TEST(ByHand, MuonIsPyTorchs) {
  const auto values = [](double seed) {
    RefTensor made(base::Shape{6, 4});
    for (std::int64_t i = 0; i < made.elements(); ++i) {
      const auto at = static_cast<double>(i);
      made[i] = std::sin(1.7 * at + seed) + 0.3 * std::cos(0.9 * at * seed + 0.2);
    }
    return made;
  };
  const std::vector<double> original{0.719901705,  1.05109312,   -0.5360056,   -0.618356093, 0.713783826,   0.171921077,
                                     -1.22405725,  -0.514450671, 0.754414252,  -0.17735048,  -0.95509067,   0.466739069,
                                     1.09864165,   -0.269998676, -0.482784838, 0.964429743,  0.702733269,   -0.859687415,
                                     -0.435853502, 0.742399051,  -0.232725256, -1.29375144,  -0.0764365074, 0.804977405};
  const std::vector<double> matched{0.74924915,   1.04506735,   -0.543432529, -0.620113747, 0.71826216,    0.176747422,
                                    -1.23389284,  -0.479598374, 0.75623936,   -0.205569035, -0.966123244,  0.467274185,
                                    1.10732971,   -0.275020366, -0.45959004,  0.98116351,   0.68357266,    -0.881452628,
                                    -0.436826373, 0.743289397,  -0.233225282, -1.28677946,  -0.0512286307, 0.809088487};
  for (const bool matches : {false, true}) {
    ops::Update update = ops::Update::by(ops::update_rule("muon"));
    update.weight_decay = 0.1;
    update.prelude = true;
    ops::Update plain = update;
    plain.prelude = false;
    ops::StepScalars step;
    step.learning_rate = 0.02f;
    RefTensor weight = values(0.5), average(base::Shape{6, 4});
    for (int index = 0; index < 3; ++index) {
      std::vector<RefValue> operands{step, values(1.0 + index), weight, average};
      const Results wanted = evaluate(ops::UpdatePrelude{.update = plain}, operands);
      operands.push_back(evaluate(ops::Orthogonalize{.match_rms = matches ? 0.2 : 0.0}, wanted)[0]);
      const Results made = evaluate(update, operands);
      weight = tensor(made[0]);
      average = tensor(made[1]);
    }
    for (std::int64_t i = 0; i < weight.elements(); ++i)
      EXPECT_NEAR(weight[i], (matches ? matched : original)[static_cast<std::size_t>(i)], 1e-8) << i;
  }
}

TEST(ByHand, DropoutKeepsItsShareAndItsMean) {
  ops::StepScalars step;
  step.seed = 9;
  RefTensor x(base::Shape{2, 20'000});
  for (double& value : x.values) value = 1.0;
  const RefTensor samples{base::Shape{2}, {5, 6}};
  const Results results = evaluate(ops::Dropout{.rate = 0.25, .site = 3}, std::vector<RefValue>{x, samples, step});
  double kept = 0.0;
  for (const double value : tensor(results[0]).values) kept += value > 0.0 ? 1.0 : 0.0;
  EXPECT_NEAR(kept / 40'000.0, 0.75, 0.01);
  EXPECT_NEAR(*std::max_element(tensor(results[0]).values.begin(), tensor(results[0]).values.end()), 4.0 / 3.0, 1e-12);
}

TEST(ByHand, LossScaleFallsAfterToleratedOverflowsAndRisesAfterGoodSteps) {
  ops::StepScalars step;
  step.loss_scale = 16.0f;
  step.hysteresis = 1;
  const ops::FinishStep finish{.dynamic = true, .window = 2, .hysteresis = 2};
  const auto next = [&](bool overflow) {
    step.skip = overflow ? 1 : 0;
    step = scalars(evaluate(finish, std::vector<RefValue>{step})[0]);
    return step.loss_scale;
  };
  EXPECT_EQ(next(true), 16.0f);  // tolerated
  EXPECT_EQ(next(true), 8.0f);
  EXPECT_EQ(next(false), 8.0f);
  EXPECT_EQ(next(false), 16.0f);
  EXPECT_EQ(step.updates, 2);
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::reference

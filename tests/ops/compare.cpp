#include "ops/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace plimsoll::op_cases {

namespace reference = kernels::cpu::reference;

namespace {

// Rounding inside (sums in f32, or in 16-bit products) and of the result itself.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 0x1p-8 + 0x1p-9;
    case DType::f16: return 0x1p-10 + 0x1p-11;
    case DType::f8e4m3:
    case DType::f8e5m2: return 0x1p-11;  // of sums and scales beside them: nothing that is rounded to such types is off
    default: return 5e-6;
  }
}

// Matrix units align the addends of such a product to the largest and keep 13 bits below it: each loses up to 2^-13 of that, with a sign
// of its own, so sums of K are off by about sqrt(K) of it.
double product_tolerance(const Case& test) {
  if (!std::holds_alternative<ops::ScaledLinear>(test.op)) return 0.0;
  return 0x1p-13 * std::sqrt(static_cast<double>(test.inputs[1].type.shape[1]));
}

// To either neighbour, where others go to the nearer one.
double update_tolerance(const Case& test) {
  const auto* update = std::get_if<ops::Update>(&test.op);
  if (update == nullptr) return 0.0;
  const std::vector<TensorType> types = test.output_types();
  const std::size_t states = types.size() - (update->copy || update->sends ? 1 : 0);
  return std::any_of(types.begin(), types.begin() + static_cast<std::ptrdiff_t>(states),
                     [](const TensorType& type) { return type.dtype == DType::bf16; })
             ? 0x1p-7 + 0x1p-9
             : 0.0;
}

// A direction with little in it grows by up to 3.5 in each step, and what rounding did to it with it.
double growth_tolerance(const Case& test) { return std::holds_alternative<ops::Orthogonalize>(test.op) ? 3e-4 : 0.0; }

double tolerance(const Case& test) {
  double coarsest = std::max({product_tolerance(test), update_tolerance(test), growth_tolerance(test)});
  for (const std::vector<TensorType>& types : {test.input_types(), test.output_types()}) {
    for (const TensorType& type : types) coarsest = std::max(coarsest, tolerance(type.dtype));
  }
  return coarsest;
}

void expect_near(const reference::RefTensor& found, const reference::RefTensor& expected, double allowed) {
  ASSERT_EQ(base::to_string(found.shape), base::to_string(expected.shape));
  double largest = 0.0;
  for (const double value : expected.values) largest = std::max(largest, std::isfinite(value) ? std::abs(value) : 0.0);
  double worst = 0.0;
  std::int64_t worst_at = -1;
  for (std::int64_t e = 0; e < expected.elements(); ++e) {
    double difference = std::abs(found[e] - expected[e]);
    if (found[e] == expected[e]) difference = 0.0;  // equal infinities
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    if (difference > worst || worst_at < 0) {
      worst = difference;
      worst_at = e;
    }
  }
  if (worst_at < 0) return;
  EXPECT_LE(worst, allowed * largest) << "element " << worst_at << ": found " << found[worst_at] << ", expected " << expected[worst_at]
                                      << ", largest magnitude " << largest << ", relative error " << worst / largest;
}

void expect_near(const base::ExactSum& found, const base::ExactSum& expected) {
  EXPECT_EQ(found.not_finite, expected.not_finite);
  if (expected.not_finite != 0) return;
  EXPECT_NEAR(found.value(), expected.value(), 1e-5 * std::abs(expected.value()));
}

void expect_near(const ops::StepScalars& found, const ops::StepScalars& expected) {
  EXPECT_EQ(found.seed, expected.seed);
  EXPECT_EQ(found.step, expected.step);
  EXPECT_EQ(found.learning_rate, expected.learning_rate);
  EXPECT_EQ(found.inverse_tokens, expected.inverse_tokens);
  EXPECT_EQ(found.loss_scale, expected.loss_scale);
  EXPECT_EQ(found.updates, expected.updates);
  EXPECT_EQ(found.good_steps, expected.good_steps);
  EXPECT_EQ(found.hysteresis, expected.hysteresis);
  EXPECT_EQ(found.skip, expected.skip);
  EXPECT_EQ(found.rows_wanted, expected.rows_wanted);
  if (std::isfinite(expected.gradient_norm)) {
    EXPECT_FLOAT_EQ(found.gradient_norm, expected.gradient_norm);
    EXPECT_FLOAT_EQ(found.gradient_multiplier, expected.gradient_multiplier);
  } else {
    EXPECT_FALSE(std::isfinite(found.gradient_norm));
  }
  expect_near(found.squared_norm, expected.squared_norm);
  expect_near(found.loss, expected.loss);
}

}  // namespace

void expect_near(const std::vector<Bytes>& found, const reference::Results& expected, const Case& test) {
  const std::vector<TensorType> types = test.output_types();
  ASSERT_EQ(types.size(), expected.size());
  for (std::size_t output = 0; output < types.size(); ++output) {
    SCOPED_TRACE("output " + std::to_string(output));
    const reference::RefValue value = decode(found[output], types[output]);
    if (const auto* scalars = std::get_if<ops::StepScalars>(&value)) {
      expect_near(*scalars, reference::scalars(expected[output]));
    } else if (const auto* sums = std::get_if<ops::ParameterSums>(&value)) {
      for (std::size_t sum = 0; sum < sums->sum.size(); ++sum) expect_near(sums->sum[sum], reference::sums(expected[output]).sum[sum]);
    } else {
      expect_near(reference::tensor(value), reference::tensor(expected[output]), tolerance(test));
    }
  }
}

}  // namespace plimsoll::op_cases

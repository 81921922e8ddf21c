#include <algorithm>
#include <array>
#include <numbers>
#include <string_view>

#include "kernels_rows/harness.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

using ops::ActivationKind;
constexpr ActivationKind kKinds[] = {ActivationKind::none, ActivationKind::gelu_tanh, ActivationKind::gelu_erf, ActivationKind::relu,
                                     ActivationKind::silu};

double apply(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::none: return x;
    case ActivationKind::gelu_tanh: return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case ActivationKind::gelu_erf: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case ActivationKind::relu: return std::max(x, 0.0);
    case ActivationKind::silu: return x / (1.0 + std::exp(-x));
  }
  return 0.0;
}

double slope(ActivationKind kind, double x) {
  if (kind == ActivationKind::relu) return x > 0.0 ? 1.0 : 0.0;
  constexpr double kStep = 1e-5;
  return (apply(kind, x + kStep) - apply(kind, x - kStep)) / (2.0 * kStep);
}

template <typename Function>
std::vector<double> mapped(const Data& x, const Function& function) {
  std::vector<double> values = doubles(x);
  for (double& value : values) value = function(value);
  return values;
}

const std::vector<Shape> kShapes{Shape{1}, Shape{3, 5}, Shape{17}, Shape{2, 3, 1025}, Shape{33, 1024}};

TEST(Add, MatchesDoublesAndWritesInPlace) {
  for (DType dtype : kFloats) {
    for (const Shape& shape : kShapes) {
      Data a = random_data(dtype, shape, 1), b = random_data(dtype, shape, 2);
      const std::vector<Data> out = run_kernel(elementwise_kernels(), ops::Add{}, {&a, &b}, {a.type});
      std::vector<double> expected = doubles(a);
      for (std::size_t index = 0; index < expected.size(); ++index) expected[index] += b[static_cast<std::int64_t>(index)];
      expect_close(out[0], expected);
      call_kernel(elementwise_kernels(), ops::Add{}, {&a, &b}, {&a}, 2);
      EXPECT_TRUE(a == out[0]);
    }
  }
}

TEST(Activation, MatchesDoublesAndWritesInPlace) {
  for (DType dtype : kFloats) {
    for (const Shape& shape : kShapes) {
      for (ActivationKind kind : kKinds) {
        Data x = random_data(dtype, shape, 1, 3.0), dy = random_data(dtype, shape, 2);
        const std::vector<Data> y = run_kernel(elementwise_kernels(), ops::Activation{kind}, {&x}, {x.type});
        expect_close(y[0], mapped(x, [&](double value) { return apply(kind, value); }));
        const std::vector<Data> dx = run_kernel(elementwise_kernels(), ops::ActivationGrad{kind}, {&dy, &x}, {x.type});
        std::vector<double> expected = mapped(x, [&](double value) { return slope(kind, value); });
        for (std::size_t index = 0; index < expected.size(); ++index) expected[index] *= dy[static_cast<std::int64_t>(index)];
        expect_close(dx[0], expected, 5e-6);
        call_kernel(elementwise_kernels(), ops::ActivationGrad{kind}, {&dy, &x}, {&dy}, 2);
        EXPECT_TRUE(dy == dx[0]);
        call_kernel(elementwise_kernels(), ops::Activation{kind}, {&x}, {&x}, 2);
        EXPECT_TRUE(x == y[0]);
      }
    }
  }
}

TEST(Gate, MatchesDoublesAndWritesInPlace) {
  for (DType dtype : kFloats) {
    for (const Shape& half : {Shape{3, 1}, Shape{5, 7}, Shape{2, 17, 1031}}) {
      for (ActivationKind kind : kKinds) {
        Shape whole = half;
        whole.set(-1, 2 * half[-1]);
        Data x = random_data(dtype, whole, 1, 2.0), dy = random_data(dtype, half, 2);
        std::vector<double> y, dx;
        for (std::int64_t index = 0; index < dy.size(); ++index) {
          const double gate = x[2 * index], up = x[2 * index + 1];
          y.push_back(apply(kind, gate) * up);
          dx.insert(dx.end(), {dy[index] * up * slope(kind, gate), dy[index] * apply(kind, gate)});
        }
        expect_close(run_kernel(elementwise_kernels(), ops::Gate{kind}, {&x}, {{dtype, half}})[0], y);
        const std::vector<Data> out = run_kernel(elementwise_kernels(), ops::GateGrad{kind}, {&dy, &x}, {x.type});
        expect_close(out[0], dx, 5e-6);
        call_kernel(elementwise_kernels(), ops::GateGrad{kind}, {&dy, &x}, {&x}, 2);
        EXPECT_TRUE(x == out[0]);
      }
    }
  }
}

TEST(Cast, RoundsToNearestEvenBetweenAllFloats) {
  for (DType from : kFloats) {
    for (DType to : kFloats) {
      Data x = random_data(from, Shape{9, 1009}, 1, 100.0);
      const float edges[] = {0.0f,     -0.0f, 1.00390625f, 1.01171875f, 1.00048828125f, 1.00146484375f, 65519.0f,
                             65520.0f, 1e-8f, 6e-8f,       3.4e38f,     INFINITY,       -INFINITY,      NAN};
      for (std::size_t index = 0; index < std::size(edges); ++index) x.set(static_cast<std::int64_t>(index), edges[index]);
      const std::vector<Data> out = run_kernel(elementwise_kernels(), ops::Cast{to}, {&x}, {{to, x.type.shape}});
      for (std::int64_t index = 0; index < x.size(); ++index) {
        Data expected({to, Shape{1}});
        expected.set(0, x[index]);
        if (std::isnan(x[index])) {
          ASSERT_TRUE(std::isnan(out[0][index]));
        } else {
          ASSERT_EQ(out[0][index], expected[0]) << x[index];
        }
      }
    }
  }
}

TEST(Elementwise, RefusesOtherFloats) {
  const std::vector<TensorType> types{{DType::f8e4m3, Shape{4}}};
  const ops::Op op = ops::Activation{};
  for (const Kernel& kernel : elementwise_kernels()) {
    // These move bytes, whatever they are.
    constexpr std::array<std::string_view, 5> kMoving{"pad", "take_columns", "put_columns", "take_part", "put_part"};
    if (std::find(kMoving.begin(), kMoving.end(), kernel.op) != kMoving.end()) continue;
    ASSERT_NE(kernel.refusal, nullptr) << kernel.name;
    EXPECT_NE(kernel.refusal({op, types, types, 1}), std::nullopt) << kernel.name;
  }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing

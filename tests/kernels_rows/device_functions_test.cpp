// The functions that host and device share, on the host: what a device adds is the hardware's exponential and quotient.
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/reference/activation.h"
#include "kernels/cuda/activation.h"
#include "ops/step_rules.h"

namespace plimsoll::kernels::cuda {
namespace {

constexpr ops::ActivationKind kKinds[] = {ops::ActivationKind::none, ops::ActivationKind::gelu_tanh, ops::ActivationKind::gelu_erf,
                                          ops::ActivationKind::relu, ops::ActivationKind::silu};

void expect_close(double found, double expected, double x) {
  EXPECT_LE(std::abs(found - expected), 2e-6 * std::max(1.0, std::abs(expected)))
      << "at " << x << ": " << found << ", expected " << expected;
}

TEST(DeviceActivation, AgreesWithTheReference) {
  for (const ops::ActivationKind which : kKinds) {
    with_activation(which, [&](auto kind) {
      for (double x = -40.0; x <= 40.0; x += 0.0371) {
        const auto argument = static_cast<float>(x);
        expect_close(activation<decltype(kind)::value>(argument), cpu::reference::activation(which, argument), x);
        const ValueAndSlope both = activation_and_slope<decltype(kind)::value>(argument);
        expect_close(both.value, cpu::reference::activation(which, argument), x);
        expect_close(both.slope, cpu::reference::activation_slope(which, argument), x);
      }
    });
  }
}

// Small results keep their relative accuracy: gradients of what is far below zero are sums of such.
TEST(DeviceActivation, KeepsTheSmallTail) {
  for (double x = -9.0; x < -3.0; x += 0.11) {
    const auto argument = static_cast<float>(x);
    const double exact = argument;
    // x sigmoid(2u): the reference's 1 + tanh u would itself lose digits here.
    const double twice = 1.5957691216057308 * (exact + 0.044715 * exact * exact * exact);
    const double gelu = exact / (1.0 + std::exp(-twice));
    EXPECT_NEAR(activation<ops::ActivationKind::gelu_tanh>(argument), gelu, 3e-5 * std::abs(gelu));
    const double silu = cpu::reference::activation(ops::ActivationKind::silu, argument);
    EXPECT_NEAR(activation<ops::ActivationKind::silu>(argument), silu, 2e-6 * std::abs(silu));
  }
}

TEST(DeviceActivation, LargeArgumentsAndNaN) {
  for (const ops::ActivationKind which : kKinds) {
    with_activation(which, [&](auto kind) {
      constexpr ops::ActivationKind kKind = decltype(kind)::value;
      for (const float x : {1e4f, 1e20f, 3e38f}) {
        EXPECT_FLOAT_EQ(activation<kKind>(x), x);
        EXPECT_FLOAT_EQ(activation_slope<kKind>(x), 1.0f);
        if (kKind == ops::ActivationKind::none) continue;
        EXPECT_NEAR(activation<kKind>(-x), 0.0f, 1e-25f);
        EXPECT_NEAR(activation_slope<kKind>(-x), 0.0f, 1e-25f);
      }
      EXPECT_TRUE(std::isnan(activation<kKind>(NAN)));
    });
  }
}

}  // namespace
}  // namespace plimsoll::kernels::cuda

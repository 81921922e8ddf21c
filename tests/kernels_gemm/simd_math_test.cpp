// The vector functions against double precision, over their whole useful range, on every instruction set the machine
// has. One of each kind is swept; the rest is arithmetic on those.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_gemm/simd_math_test.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"
#include "kernels_gemm/targets.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

template <typename Function>
void map(const float* src, float* dst, std::size_t count, Function function) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(d, function(d, load(d, src + i)), dst + i);
  if (i < count) store_n(d, function(d, load_n(d, src + i, count - i)), dst + i, count - i);
}

void map_named(int which, const float* src, float* dst, std::size_t count) {
  using ops::ActivationKind;
  switch (which) {
    case 0: return map(src, dst, count, [](auto d, auto x) { return exp(d, x); });
    case 1: return map(src, dst, count, [](auto d, auto x) { return tanh(d, x); });
    case 2: return map(src, dst, count, [](auto d, auto x) { return erf(d, x); });
    case 3: return map(src, dst, count, [](auto d, auto x) { return activation<ActivationKind::gelu_tanh>(d, x); });
    case 4: return map(src, dst, count, [](auto d, auto x) { return activation_derivative<ActivationKind::gelu_tanh>(d, x); });
    case 5: return map(src, dst, count, [](auto d, auto x) { return activation<ActivationKind::gelu_erf>(d, x); });
    case 6: return map(src, dst, count, [](auto d, auto x) { return activation_derivative<ActivationKind::gelu_erf>(d, x); });
    case 7: return map(src, dst, count, [](auto d, auto x) { return activation<ActivationKind::silu>(d, x); });
    case 8: return map(src, dst, count, [](auto d, auto x) { return activation_derivative<ActivationKind::silu>(d, x); });
    case 9: return map(src, dst, count, [](auto d, auto x) { return activation<ActivationKind::relu>(d, x); });
    default: return map(src, dst, count, [](auto d, auto x) { return activation_derivative<ActivationKind::relu>(d, x); });
  }
}

template <typename T>
void round_trip(const float* src, T* dst, float* back, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i + lanes <= count; i += lanes) {
    store(d, load(d, src + i), dst + i);
    store(d, load(d, dst + i), back + i);
  }
}
void round_trip_bf16(const float* src, Bf16* dst, float* back, std::size_t count) { round_trip(src, dst, back, count); }
void round_trip_f16(const float* src, F16* dst, float* back, std::size_t count) { round_trip(src, dst, back, count); }

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {
namespace {

HWY_EXPORT(map_named);
HWY_EXPORT(round_trip_bf16);
HWY_EXPORT(round_trip_f16);

std::vector<float> sweep(float low, float high) {
  std::vector<float> xs;
  const int count = 200003;
  for (int i = 0; i < count; ++i) xs.push_back(low + (high - low) * static_cast<float>(i) / static_cast<float>(count - 1));
  for (float x = 1e-8f; x < 1.0f; x *= 1.7f) {
    xs.push_back(x);
    xs.push_back(-x);
  }
  return xs;
}

struct Case {
  int which;
  float low, high;
  double relative, absolute;
  double (*exact)(double);
};

double gelu_tanh_exact(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double gelu_tanh_derivative_exact(double x) {
  const double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}
double gelu_erf_exact(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double gelu_erf_derivative_exact(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
}
double silu_exact(double x) { return x / (1 + std::exp(-x)); }
double silu_derivative_exact(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}
double relu_exact(double x) { return x > 0 ? x : 0; }
double relu_derivative_exact(double x) { return x > 0 ? 1 : 0; }

TEST(SimdMath, AgreesWithDouble) {
  const std::vector<Case> cases = {
      {0, -86.9f, 88.3f, 2e-7, 0, [](double x) { return std::exp(x); }},
      {1, -12, 12, 3e-7, 0, [](double x) { return std::tanh(x); }},
      {2, -6, 6, 0, 5e-7, [](double x) { return std::erf(x); }},
      {3, -12, 12, 1e-6, 1e-7, gelu_tanh_exact},
      {4, -12, 12, 0, 5e-7, gelu_tanh_derivative_exact},
      {5, -12, 12, 1e-6, 1e-7, gelu_erf_exact},
      {6, -12, 12, 0, 5e-7, gelu_erf_derivative_exact},
      {7, -80, 80, 1e-6, 0, silu_exact},
      {8, -80, 80, 0, 5e-7, silu_derivative_exact},
      {9, -3, 3, 0, 0, relu_exact},
      {10, -3, 3, 0, 0, relu_derivative_exact},
  };
  on_every_target([&] {
    for (const Case& test : cases) {
      const std::vector<float> xs = sweep(test.low, test.high);
      std::vector<float> ys(xs.size());
      HWY_DYNAMIC_DISPATCH(map_named)(test.which, xs.data(), ys.data(), xs.size());
      double worst = 0;
      float at = 0;
      for (std::size_t i = 0; i < xs.size(); ++i) {
        const double exact = test.exact(xs[i]);
        const double excess = std::abs(ys[i] - exact) - test.relative * std::abs(exact) - test.absolute;
        if (!(excess <= worst)) {
          worst = excess;
          at = xs[i];
        }
      }
      EXPECT_EQ(worst, 0) << "function " << test.which << " at " << at;
    }
  });
}

TEST(SimdMath, KeepsToTheRulesAtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> xs = {inf, -inf, nan, 1e30f, -1e30f, 1e15f, -1e15f, 200.0f, -200.0f, 0.0f, -0.0f};
  on_every_target([&] {
    const auto apply = [&](int which) {
      std::vector<float> ys(xs.size());
      HWY_DYNAMIC_DISPATCH(map_named)(which, xs.data(), ys.data(), xs.size());
      EXPECT_TRUE(std::isnan(ys[2])) << "function " << which;
      return ys;
    };
    const std::vector<float> e = apply(0);
    EXPECT_EQ(e[0], inf);
    EXPECT_EQ(e[1], 0);
    EXPECT_EQ(e[3], inf);
    EXPECT_EQ(e[4], 0);
    EXPECT_EQ(e[9], 1);
    for (const int which : {1, 2}) {
      const std::vector<float> y = apply(which);
      EXPECT_EQ(y[0], 1);
      EXPECT_EQ(y[1], -1);
      EXPECT_EQ(y[7], 1);
      EXPECT_LT(std::abs(y[9]), 5e-7);
    }
    for (const int which : {3, 5, 7, 9}) {
      const std::vector<float> y = apply(which);
      EXPECT_EQ(y[3], 1e30f);
      EXPECT_EQ(y[4], 0);
      EXPECT_EQ(y[5], 1e15f);
      EXPECT_EQ(y[9], 0);
    }
    for (const int which : {4, 6, 8}) {
      const std::vector<float> y = apply(which);
      for (const std::size_t i : {0, 3, 5, 7}) EXPECT_EQ(y[i], 1) << which << " of " << xs[i];
      for (const std::size_t i : {1, 4, 6, 8}) EXPECT_NEAR(y[i], 0, 1e-26) << which << " of " << xs[i];
    }
  });
}

TEST(SimdMath, RoundsAsTheScalarConversions) {
  std::vector<float> xs;
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 40009) xs.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (const float x : {0.0f, -0.0f, 65504.0f, 65519.9f, 65520.0f, 1.00390625f, 1.01171875f, 6e-8f, 2.9e-8f}) xs.push_back(x);
  while (xs.size() % 16 != 0) xs.push_back(1.0f);
  on_every_target([&] {
    std::vector<Bf16> b(xs.size());
    std::vector<F16> h(xs.size());
    std::vector<float> back(xs.size());
    HWY_DYNAMIC_DISPATCH(round_trip_bf16)(xs.data(), b.data(), back.data(), xs.size());
    for (std::size_t i = 0; i < xs.size(); ++i) {
      ASSERT_EQ(b[i].bits, from_f32<Bf16>(xs[i]).bits) << xs[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(to_f32(b[i])));
    }
    HWY_DYNAMIC_DISPATCH(round_trip_f16)(xs.data(), h.data(), back.data(), xs.size());
    for (std::size_t i = 0; i < xs.size(); ++i) {
      if (std::isnan(xs[i])) {
        ASSERT_TRUE(std::isnan(back[i]));
        continue;
      }
      ASSERT_EQ(h[i].bits, from_f32<F16>(xs[i]).bits) << xs[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(to_f32(h[i])));
    }
  });
}

}  // namespace
}  // namespace plimsoll::kernels::cpu
#endif

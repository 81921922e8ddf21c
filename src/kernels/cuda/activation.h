// Activations and their derivatives in f32, for host and device: kernels use them, and a test on the host holds them against the
// reference. On the device the exponential and the quotient are the hardware's own, good to two units in the last place.
#pragma once

#include <cmath>

#include "base/host_device.h"
#include "ops/attributes.h"

namespace plimsoll::kernels::cuda {

PLIMSOLL_HOST_DEVICE inline float fast_exp(float x) {
#ifdef __CUDA_ARCH__
  return __expf(x);
#else
  return std::exp(x);
#endif
}

PLIMSOLL_HOST_DEVICE inline float fast_quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdividef(a, b);
#else
  return a / b;
#endif
}

// Beyond the bounds used below slopes are 0 or 1 to f32, and no overflow meets a vanishing factor. NaN stays.
PLIMSOLL_HOST_DEVICE inline float clamped(float x, float bound) { return x < -bound ? -bound : x > bound ? bound : x; }

// s = 1 / (1 + e^-x) and its slope s (1 - s), without the cancellation of 1 - s. The slope is right for |x| < 86.
struct Sigmoid {
  float value;
  float slope;
};

PLIMSOLL_HOST_DEVICE inline Sigmoid sigmoid(float x) {
  const float decay = fast_exp(-x);
  const float s = fast_quotient(1.0f, 1.0f + decay);
  return {s, s * decay * s};
}

// 0.5 x (1 + tanh u) = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation for u << 0. This is 2u.
PLIMSOLL_HOST_DEVICE inline float gelu_tanh_argument(float x) { return x * (x * x * 0.044715f + 1.0f) * 1.5957691216f; }

// The standard normal distribution function, given decay = e^(-x^2/2). With z = |x| / sqrt 2 and t = 1 / (1 + 0.35 z),
// erfc(z) = t e^(-z^2) P(t) to 3e-7 relative.
PLIMSOLL_HOST_DEVICE inline float normal_cdf(float x, float decay) {
  const float t = fast_quotient(1.0f, (x < 0.0f ? -x : x) * (0.35f * 0.70710678f) + 1.0f);
  float p = 0.0376075841486454f;
  p = p * t - 0.1544683575630188f;
  p = p * t + 0.17056843638420105f;
  p = p * t - 0.012557625770568848f;
  p = p * t + 0.07382262498140335f;
  p = p * t + 0.1534976065158844f;
  p = p * t + 0.14845897257328033f;
  p = p * t + 0.18852433562278748f;
  p = p * t + 0.19705823063850403f;
  p = p * t + 0.1974882185459137f;
  const float half_tail = 0.5f * p * t * decay;
  return x < 0.0f ? half_tail : 1.0f - half_tail;
}

template <ops::ActivationKind kind>
PLIMSOLL_HOST_DEVICE inline float activation(float x) {
  using ops::ActivationKind;
  if constexpr (kind == ActivationKind::gelu_tanh) return x * sigmoid(gelu_tanh_argument(x)).value;
  if constexpr (kind == ActivationKind::gelu_erf) return x * normal_cdf(x, fast_exp(-0.5f * x * x));
  if constexpr (kind == ActivationKind::silu) return x * sigmoid(x).value;
  if constexpr (kind == ActivationKind::relu) return x < 0.0f ? 0.0f : x;
  return x;
}

// A function's value and its derivative, for gates, whose gradient needs both.
struct ValueAndSlope {
  float value;
  float slope;
};

template <ops::ActivationKind kind>
PLIMSOLL_HOST_DEVICE inline ValueAndSlope activation_and_slope(float x) {
  using ops::ActivationKind;
  if constexpr (kind == ActivationKind::gelu_tanh) {
    const float near = clamped(x, 9.0f);
    const Sigmoid s = sigmoid(gelu_tanh_argument(near));
    return {(x < -9.0f ? near : x) * s.value, near * (near * near * 0.2140644488f + 1.5957691216f) * s.slope + s.value};
  }
  if constexpr (kind == ActivationKind::gelu_erf) {
    const float near = clamped(x, 13.0f);
    const float decay = fast_exp(-0.5f * near * near);
    const float cdf = normal_cdf(near, decay);
    return {(x < -13.0f ? near : x) * cdf, cdf + near * decay * 0.3989422804f};  // 1 / sqrt(2 pi)
  }
  if constexpr (kind == ActivationKind::silu) {
    const float near = clamped(x, 85.0f);
    const Sigmoid s = sigmoid(near);
    return {(x < -85.0f ? near : x) * s.value, near * s.slope + s.value};
  }
  return {activation<kind>(x), kind == ActivationKind::relu && !(x > 0.0f) ? 0.0f : 1.0f};
}

template <ops::ActivationKind kind>
PLIMSOLL_HOST_DEVICE inline float activation_slope(float x) {
  return activation_and_slope<kind>(x).slope;
}

// Calls visit with a KindOf<..>: one switch outside the loops.
template <ops::ActivationKind kind>
struct KindOf {
  static constexpr ops::ActivationKind value = kind;
};

template <typename Visit>
void with_activation(ops::ActivationKind kind, Visit&& visit) {
  using ops::ActivationKind;
  switch (kind) {
    case ActivationKind::none: return visit(KindOf<ActivationKind::none>());
    case ActivationKind::gelu_tanh: return visit(KindOf<ActivationKind::gelu_tanh>());
    case ActivationKind::gelu_erf: return visit(KindOf<ActivationKind::gelu_erf>());
    case ActivationKind::relu: return visit(KindOf<ActivationKind::relu>());
    case ActivationKind::silu: return visit(KindOf<ActivationKind::silu>());
  }
}

}  // namespace plimsoll::kernels::cuda

// Vector mathematics of the CPU kernels: loads and stores of every element type as f32, exp, tanh, erf, and the
// activations with their derivatives. Included once per instruction set (Highway's foreach_target), hence the guard.
//
// A kernel file uses it as rope.cpp does:
//   - it includes its ordinary headers, among them kernels/cpu/simd_targets.h,
//   - defines HWY_TARGET_INCLUDE as its own path, "kernels/cpu/rope.cpp",
//   - includes <hwy/foreach_target.h>, which compiles the file once for each instruction set,
//   - and after it kernels/cpu/simd_math.h.
//   - Between HWY_BEFORE_NAMESPACE() and HWY_AFTER_NAMESPACE(), in plimsoll::kernels::cpu::HWY_NAMESPACE, stands what is compiled for
//     each of them: loops over vectors of hn::ScalableTag<float> d, with load(d, p), exp(d, v) and store(d, v, p) of this header.
//   - Under HWY_ONCE stands what is compiled once:
//     HWY_EXPORT(f) makes the table of the versions of f,
//     HWY_DYNAMIC_DISPATCH(f) chooses from it.
//
// Polynomials are minimax fits for these forms. Accuracies are tested in tests/kernels_gemm/simd_math_test.cpp.
#if defined(PLIMSOLL_KERNELS_CPU_SIMD_MATH_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLIMSOLL_KERNELS_CPU_SIMD_MATH_H
#undef PLIMSOLL_KERNELS_CPU_SIMD_MATH_H
#else
#define PLIMSOLL_KERNELS_CPU_SIMD_MATH_H
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/simd_targets.h"
#include "ops/attributes.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using U16Tag = hn::Rebind<std::uint16_t, D>;
template <class D>
using U32Tag = hn::RebindToUnsigned<D>;

// ---- loads and stores: Lanes(d) elements as f32, unaligned

// Raw<T> is what Highway calls the stored form of T; widen turns a vector of it into f32.
template <typename T>
struct RawOf {
  using Type = std::uint16_t;
};
template <>
struct RawOf<float> {
  using Type = float;
};
template <typename T>
using Raw = typename RawOf<T>::Type;
template <class D, typename T>
using RawVec = hn::Vec<hn::Rebind<Raw<T>, D>>;

template <typename T, class D>
HWY_INLINE hn::Vec<D> widen([[maybe_unused]] D d, RawVec<D, T> raw) {
  if constexpr (std::is_same_v<T, float>) {
    return raw;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(U32Tag<D>(), raw)));
  } else {
#if HWY_TARGET <= HWY_AVX2
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), raw));
#else
    HWY_ALIGN float lanes[hn::MaxLanes(d)];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = base::f32_from_f16(hn::ExtractLane(raw, i));
    return hn::Load(d, lanes);
#endif
  }
}

template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* src) {
  return widen<T>(d, hn::LoadU(hn::Rebind<Raw<T>, D>(), reinterpret_cast<const Raw<T>*>(src)));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, float* dst) {
  hn::StoreU(value, d, dst);
}

// Round to nearest even as base::bf16_from_f32 does, NaN included.
template <class D>
HWY_INLINE void store(D /*d*/, hn::Vec<D> value, Bf16* dst) {
  const U32Tag<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  hn::StoreU(hn::TruncateTo(U16Tag<D>(), hn::IfThenElse(is_nan, quiet, rounded)), U16Tag<D>(), &dst->bits);
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, F16* dst) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> dh;
  hn::StoreU(hn::DemoteTo(dh, value), dh, reinterpret_cast<hwy::float16_t*>(dst));
#else
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(value, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) dst[i] = from_f32<F16>(lanes[i]);
#endif
}

// The first n < Lanes(d) elements; the other lanes are `fill`.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* src, std::size_t n, float fill = 0.0f) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  for (std::size_t i = 0; i < n; ++i) lanes[i] = to_f32(src[i]);
  for (std::size_t i = n; i < hn::Lanes(d); ++i) lanes[i] = fill;
  return hn::Load(d, lanes);
}

template <class D, typename T>
HWY_INLINE void store_n(D d, hn::Vec<D> value, T* dst, std::size_t n) {
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  store(d, value, lanes);
  for (std::size_t i = 0; i < n; ++i) dst[i] = lanes[i];
}

// ---- functions

// x within [-bound, bound]; NaN stays NaN, which Min and Max do not promise.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V clamp(D d, V x, float bound) {
  const V high = hn::Set(d, bound);
  return hn::IfThenElse(hn::Gt(hn::Abs(x), high), hn::CopySign(high, x), x);
}

// e^x to 2e-7 relative; 0 under -86.98 (where results would be subnormal), inf over 88.37. NaN stays NaN.
// x = n ln2 + r; the rounding constant leaves n in the low bits of a float, from where it is added to the exponent.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  const auto rounding = hn::Set(d, 12582912.0f);  // 1.5 * 2^23
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), rounding);
  const V n = hn::Sub(shifted, rounding);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 0.0013901294441893697f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008363170549273491f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166685417294502f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.16666577756404877f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const U32Tag<D> du;
  const V scaled = hn::BitCast(d, hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
  const V bounded = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -86.98f)), scaled);
  const V over = hn::BitCast(d, hn::Set(du, 0x7F800000u));
  const V result = hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.37f)), over, bounded);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// 1 / (1 + e^-x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

// s = sigmoid(x) and s (1 - s), its derivative, without the cancellation of 1 - s. Right for |x| < 86.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_with_slope(D d, V x, V& slope) {
  const V one = hn::Set(d, 1.0f);
  const V decay = exp(d, hn::Neg(x));
  const V s = hn::Div(one, hn::Add(one, decay));
  slope = hn::Mul(hn::Mul(s, decay), s);
  return s;
}

// tanh to 3e-7 relative: an odd polynomial near 0, where 1 - e^-2|x| would cancel.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V size = hn::Abs(x);
  const V square = hn::Mul(x, x);
  V p = hn::Set(d, -0.006096935365349054f);
  p = hn::MulAdd(p, square, hn::Set(d, 0.02099735289812088f));
  p = hn::MulAdd(p, square, hn::Set(d, -0.05385095253586769f));
  p = hn::MulAdd(p, square, hn::Set(d, 0.13332770764827728f));
  p = hn::MulAdd(p, square, hn::Set(d, -0.333333283662796f));
  const V near = hn::MulAdd(hn::Mul(p, square), size, size);
  const V decay = exp(d, hn::Mul(size, hn::Set(d, -2.0f)));
  const V far = hn::Div(hn::Sub(one, decay), hn::Add(one, decay));
  return hn::CopySign(hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), near, far), x);
}

// erfc(|z|) = t e^(-z^2) P(t), t = 1 / (1 + 0.35 |z|), to 3e-7 relative; decay is e^(-z^2), which callers have use for.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc_of_size(D d, V size, V decay) {
  const V one = hn::Set(d, 1.0f);
  const V t = hn::Div(one, hn::MulAdd(size, hn::Set(d, 0.35f), one));
  V p = hn::Set(d, 0.0376075841486454f);
  p = hn::MulAdd(p, t, hn::Set(d, -0.1544683575630188f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.17056843638420105f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.012557625770568848f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.07382262498140335f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.1534976065158844f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.14845897257328033f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.18852433562278748f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.19705823063850403f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.1974882185459137f));
  return hn::Mul(hn::Mul(p, t), decay);
}

// erf to 5e-7 absolute.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf(D d, V x) {
  const V size = hn::Abs(x);
  const V decay = exp(d, hn::Neg(hn::Mul(x, x)));
  return hn::CopySign(hn::Sub(hn::Set(d, 1.0f), erfc_of_size(d, size, decay)), x);
}

// The standard normal distribution function, given e^(-x^2/2).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_cdf(D d, V x, V decay) {
  const V half_tail = hn::Mul(hn::Set(d, 0.5f), erfc_of_size(d, hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f)), decay));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), half_tail, hn::Sub(hn::Set(d, 1.0f), half_tail));
}

// ---- activations

// 0.5 x (1 + tanh u) = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation for u << 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_argument(D d, V x) {
  const V inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
  return hn::Mul(hn::Mul(x, inner), hn::Set(d, 1.5957691216f));  // 2u
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  return hn::Mul(x, sigmoid(d, gelu_tanh_argument(d, x)));
}

// Beyond the bounds of the derivatives below they are 0 or 1 to f32, and no overflow can meet a vanishing factor.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_derivative(D d, V x) {
  x = clamp(d, x, 9.0f);
  V slope;
  const V s = sigmoid_with_slope(d, gelu_tanh_argument(d, x), slope);
  const V inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.2140644488f), hn::Set(d, 1.5957691216f));  // d(2u)/dx
  return hn::MulAdd(hn::Mul(x, inner), slope, s);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_erf(D d, V x) {
  return hn::Mul(x, normal_cdf(d, x, exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_erf_derivative(D d, V x) {
  x = clamp(d, x, 13.0f);
  const V decay = exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  return hn::MulAdd(hn::Mul(x, decay), hn::Set(d, 0.3989422804f), normal_cdf(d, x, decay));  // 1 / sqrt(2 pi)
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu(D d, V x) {
  return hn::Mul(x, sigmoid(d, x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_derivative(D d, V x) {
  x = clamp(d, x, 85.0f);
  V slope;
  const V s = sigmoid_with_slope(d, x, slope);
  return hn::MulAdd(x, slope, s);
}

template <ops::ActivationKind kind, class D, class V = hn::Vec<D>>
HWY_INLINE V activation(D d, V x) {
  if constexpr (kind == ops::ActivationKind::gelu_tanh) return gelu_tanh(d, x);
  if constexpr (kind == ops::ActivationKind::gelu_erf) return gelu_erf(d, x);
  if constexpr (kind == ops::ActivationKind::silu) return silu(d, x);
  if constexpr (kind == ops::ActivationKind::relu) return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  return x;
}

template <ops::ActivationKind kind, class D, class V = hn::Vec<D>>
HWY_INLINE V activation_derivative(D d, V x) {
  if constexpr (kind == ops::ActivationKind::gelu_tanh) return gelu_tanh_derivative(d, x);
  if constexpr (kind == ops::ActivationKind::gelu_erf) return gelu_erf_derivative(d, x);
  if constexpr (kind == ops::ActivationKind::silu) return silu_derivative(d, x);
  const V one = hn::Set(d, 1.0f);
  if constexpr (kind == ops::ActivationKind::relu) return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), one);
  return one;
}

// The second derivative. Where sigmoid's argument is a(x): s'' = s' (1 - 2 s), so that (x s)'' = 2 s' a' + x s' ((1 - 2 s) a'^2 + a'').
template <ops::ActivationKind kind, class D, class V = hn::Vec<D>>
HWY_INLINE V activation_curve(D d, V x) {
  [[maybe_unused]] const V two = hn::Set(d, 2.0f);
  [[maybe_unused]] V slope;
  if constexpr (kind == ops::ActivationKind::gelu_tanh) {
    x = clamp(d, x, 9.0f);
    const V s = sigmoid_with_slope(d, gelu_tanh_argument(d, x), slope);
    const V inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.2140644488f), hn::Set(d, 1.5957691216f));  // a'
    const V bend = hn::MulAdd(hn::NegMulAdd(two, s, hn::Set(d, 1.0f)), hn::Mul(inner, inner), hn::Mul(x, hn::Set(d, 0.4281288976f)));
    return hn::Mul(slope, hn::MulAdd(x, bend, hn::Mul(two, inner)));
  }
  if constexpr (kind == ops::ActivationKind::gelu_erf) {
    x = clamp(d, x, 13.0f);
    const V decay = exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
    return hn::Mul(hn::Mul(decay, hn::Set(d, 0.3989422804f)), hn::NegMulAdd(x, x, two));
  }
  if constexpr (kind == ops::ActivationKind::silu) {
    x = clamp(d, x, 85.0f);
    const V s = sigmoid_with_slope(d, x, slope);
    return hn::Mul(slope, hn::MulAdd(x, hn::NegMulAdd(two, s, hn::Set(d, 1.0f)), two));
  }
  return hn::Zero(d);
}

// Calls visit with std::integral_constant<ActivationKind>: one switch outside the loops.
template <typename Visit>
void with_activation(ops::ActivationKind kind, Visit&& visit) {
  using ops::ActivationKind;
  switch (kind) {
    case ActivationKind::none: return visit(std::integral_constant<ActivationKind, ActivationKind::none>());
    case ActivationKind::gelu_tanh: return visit(std::integral_constant<ActivationKind, ActivationKind::gelu_tanh>());
    case ActivationKind::gelu_erf: return visit(std::integral_constant<ActivationKind, ActivationKind::gelu_erf>());
    case ActivationKind::relu: return visit(std::integral_constant<ActivationKind, ActivationKind::relu>());
    case ActivationKind::silu: return visit(std::integral_constant<ActivationKind, ActivationKind::silu>());
  }
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

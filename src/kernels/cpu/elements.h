// The floating element types of CPU tensors as C++ types, so that kernels can be templates over them. Arithmetic is
// always f32: these only load and store.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/error.h"

namespace plimsoll::kernels::cpu {

struct Bf16 {
  std::uint16_t bits;
};

struct F16 {
  std::uint16_t bits;
};

inline float to_f32(float value) { return value; }
inline float to_f32(Bf16 value) { return base::f32_from_bf16(value.bits); }
inline float to_f32(F16 value) { return base::f32_from_f16(value.bits); }

template <typename T>
T from_f32(float value);
template <>
inline float from_f32<float>(float value) {
  return value;
}
template <>
inline Bf16 from_f32<Bf16>(float value) {
  return {base::bf16_from_f32(value)};
}
template <>
inline F16 from_f32<F16>(float value) {
  return {base::f16_from_f32(value)};
}

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr base::DType value = base::DType::f32;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr base::DType value = base::DType::bf16;
};
template <>
struct DTypeOf<F16> {
  static constexpr base::DType value = base::DType::f16;
};

inline bool is_element(base::DType dtype) { return dtype == base::DType::f32 || dtype == base::DType::bf16 || dtype == base::DType::f16; }

// Calls visit with a value of the C++ type of dtype: with_element(dtype, [&](auto zero) { using T = decltype(zero); ... }).
// Kernels refuse other types in refusal(), so meeting one here is a broken invariant.
template <typename Visit>
decltype(auto) with_element(base::DType dtype, Visit&& visit) {
  PLIMSOLL_CHECK(is_element(dtype), "{} is not a floating element type of CPU kernels", base::name_of(dtype));
  switch (dtype) {
    case base::DType::bf16: return visit(Bf16{});
    case base::DType::f16: return visit(F16{});
    default: return visit(0.0f);
  }
}

}  // namespace plimsoll::kernels::cpu

// Widening and narrowing of 16-bit floats.
#include "kernels/cpu/convert.h"

#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

template <typename From, typename To>
HWY_INLINE void convert(const From* HWY_RESTRICT src, To* HWY_RESTRICT dst, std::int64_t count) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  std::int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) store(d, load(d, src + index), dst + index);
  for (; index < count; ++index) dst[index] = from_f32<To>(to_f32(src[index]));
}

void widen_bf16(const Bf16* src, float* dst, std::int64_t count) { convert(src, dst, count); }
void widen_f16(const F16* src, float* dst, std::int64_t count) { convert(src, dst, count); }
void narrow_bf16(const float* src, Bf16* dst, std::int64_t count) { convert(src, dst, count); }
void narrow_f16(const float* src, F16* dst, std::int64_t count) { convert(src, dst, count); }

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(narrow_f16);

namespace {

void copy_f32(const void* src, void* dst, std::int64_t count) {
  if (src != dst) std::memcpy(dst, src, static_cast<std::size_t>(count) * sizeof(float));
}

}  // namespace

std::optional<std::string> refuse_other_floats(const ops::KernelQuery& query) {
  for (const ops::Types types : {query.inputs, query.outputs}) {
    for (const base::TensorType& type : types) {
      if (base::is_float(type.dtype) && !is_element(type.dtype)) return fmt::format("{} is not f32, bf16 or f16", base::to_string(type));
    }
  }
  return std::nullopt;
}

void widen(base::DType from, const void* src, float* dst, std::int64_t count) {
  switch (from) {
    case base::DType::f32: return copy_f32(src, dst, count);
    case base::DType::bf16: return HWY_DYNAMIC_DISPATCH(widen_bf16)(static_cast<const Bf16*>(src), dst, count);
    case base::DType::f16: return HWY_DYNAMIC_DISPATCH(widen_f16)(static_cast<const F16*>(src), dst, count);
    default: PLIMSOLL_CHECK(false, "{} is not a type kernels compute with", base::name_of(from));
  }
}

void narrow(base::DType to, const float* src, void* dst, std::int64_t count) {
  switch (to) {
    case base::DType::f32: return copy_f32(src, dst, count);
    case base::DType::bf16: return HWY_DYNAMIC_DISPATCH(narrow_bf16)(src, static_cast<Bf16*>(dst), count);
    case base::DType::f16: return HWY_DYNAMIC_DISPATCH(narrow_f16)(src, static_cast<F16*>(dst), count);
    default: PLIMSOLL_CHECK(false, "{} is not a type kernels compute with", base::name_of(to));
  }
}

}  // namespace plimsoll::kernels::cpu
#endif

// Element types at the edge of kernels. Kernels compute on f32 rows or blocks that stay in the first-level cache;
// a 16-bit operand is widened into a buffer first and narrowed from one afterwards, an f32 operand is used where it
// lies. So a kernel is written once, any mix of types works, and the cost is a pass over the cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "kernels/cpu/kernel.h"

namespace plimsoll::kernels::cpu {

// How many elements elementwise kernels take at a time: three such buffers fit the first-level cache.
inline constexpr std::int64_t kBlock = 1024;

// Refuses queries with a float operand that is not f32, bf16 or f16.
std::optional<std::string> refuse_other_floats(const ops::KernelQuery& query);

// `src` and `dst` must not overlap unless both are f32 and the same.
void widen(base::DType from, const void* src, float* dst, std::int64_t count);
// Rounds to nearest even.
void narrow(base::DType to, const float* src, void* dst, std::int64_t count);

inline std::byte* element_address(const Tensor& tensor, std::int64_t first) {
  return tensor.as<std::byte>() + first * (tensor.type.dtype == base::DType::f32 ? 4 : 2);
}

// Elements [first, first + count) as f32: in place, or widened into `buffer`.
inline const float* read_f32(const Tensor& tensor, std::int64_t first, std::int64_t count, float* buffer) {
  const std::byte* src = element_address(tensor, first);
  if (tensor.type.dtype == base::DType::f32) return reinterpret_cast<const float*>(src);
  widen(tensor.type.dtype, src, buffer, count);
  return buffer;
}

// Where to write elements from `first` on: in place, or `buffer`, which finish_f32 then narrows.
inline float* target_f32(const Tensor& tensor, std::int64_t first, float* buffer) {
  return tensor.type.dtype == base::DType::f32 ? reinterpret_cast<float*>(element_address(tensor, first)) : buffer;
}

inline void finish_f32(const Tensor& tensor, std::int64_t first, std::int64_t count, const float* written) {
  if (tensor.type.dtype != base::DType::f32) narrow(tensor.type.dtype, written, element_address(tensor, first), count);
}

}  // namespace plimsoll::kernels::cpu

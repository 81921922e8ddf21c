#include "executor/core/not_finite.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace plimsoll::executor {

namespace {

template <typename Stored, typename ToFloat>
bool all_below_infinity(const std::byte* data, std::int64_t count, const ToFloat& to_float) {
  for (std::int64_t index = 0; index < count; ++index) {
    Stored stored;
    std::memcpy(&stored, data + index * static_cast<std::int64_t>(sizeof stored), sizeof stored);
    if (!(to_float(stored) < std::numeric_limits<float>::infinity())) return false;
  }
  return true;
}

}  // namespace

bool all_finite(const std::byte* data, const base::TensorType& type) {
  const std::int64_t count = type.shape.elements();
  switch (type.dtype) {
    case base::DType::f32: return all_below_infinity<float>(data, count, [](float value) { return value; });
    case base::DType::bf16: return all_below_infinity<std::uint16_t>(data, count, base::f32_from_bf16);
    case base::DType::f16: return all_below_infinity<std::uint16_t>(data, count, base::f32_from_f16);
    default: return true;
  }
}

}  // namespace plimsoll::executor

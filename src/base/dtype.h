// Element types of tensors, and scalar conversion to and from the 16-bit ones.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace plimsoll::base {

enum class DType : std::uint8_t { f32, bf16, f16, f8e4m3, f8e5m2, i32, i64, u16, u8 };

std::int64_t size_of(DType dtype);
std::string_view name_of(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
bool is_float(DType dtype);

// Round to nearest even; a NaN stays a (quiet) NaN.
inline std::uint16_t bf16_from_f32(float value) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  bits += 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

inline float f32_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

inline std::uint16_t f16_from_f32(float value) {
  _Float16 half = static_cast<_Float16>(value);
  std::uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

inline float f32_from_f16(std::uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, sizeof half);
  return static_cast<float>(half);
}

}  // namespace plimsoll::base

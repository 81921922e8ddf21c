// Ids of several widths in mapped bytes, widened to i32.
//
// Loads go through memcpy because nothing guarantees that a file aligns them; the compiler makes wide loads of it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

namespace plimsoll::formats {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read in place");

enum class IdWidth { u8, i16, u16, i32, u32, i64 };

constexpr std::int64_t size_of(IdWidth width) {
  switch (width) {
    case IdWidth::u8: return 1;
    case IdWidth::i16:
    case IdWidth::u16: return 2;
    case IdWidth::i32:
    case IdWidth::u32: return 4;
    case IdWidth::i64: return 8;
  }
  return 0;
}

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Returns the index of the first id that does not fit into i32, if any; such ids are left out of `out`.
template <typename T>
std::optional<std::size_t> widen_as(const std::byte* from, std::span<std::int32_t> out) {
  bool fits = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const T id = load<T>(from + i * sizeof(T));
    out[i] = static_cast<std::int32_t>(id);
    fits = fits && static_cast<T>(out[i]) == id && (std::numeric_limits<T>::is_signed || out[i] >= 0);
  }
  if (fits) return std::nullopt;
  for (std::size_t i = 0;; ++i) {
    const T id = load<T>(from + i * sizeof(T));
    if (static_cast<T>(out[i]) != id || (!std::numeric_limits<T>::is_signed && out[i] < 0)) return i;
  }
}

inline std::optional<std::size_t> widen(IdWidth width, const std::byte* from, std::span<std::int32_t> out) {
  switch (width) {
    case IdWidth::u8: return widen_as<std::uint8_t>(from, out);
    case IdWidth::i16: return widen_as<std::int16_t>(from, out);
    case IdWidth::u16: return widen_as<std::uint16_t>(from, out);
    case IdWidth::i32: return widen_as<std::int32_t>(from, out);
    case IdWidth::u32: return widen_as<std::uint32_t>(from, out);
    case IdWidth::i64: return widen_as<std::int64_t>(from, out);
  }
  return std::nullopt;
}

}  // namespace plimsoll::formats

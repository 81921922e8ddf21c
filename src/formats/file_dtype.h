// The element types that a safetensors file may hold, and their way to and from f32.
//
// The list is the reference reader's, wider than base::DType: a file is accepted or refused as a whole, so that types we
// never compute with must still be measured. The order is the reference writer's: wide types come last here and first
// in a file, which keeps every tensor aligned to its element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace plimsoll::formats {

// clang-format off
enum class FileDType : std::uint8_t {
  boolean, f4, f6_e2m3, f6_e3m2, u8, i8, f8_e5m2, f8_e4m3, f8_e8m0, f8_e4m3fnuz, f8_e5m2fnuz,
  i16, u16, f16, bf16, i32, u32, f32, c64, f64, i64, u64,
};
// clang-format on

std::int64_t bits_of(FileDType dtype);
std::string_view name_of(FileDType dtype);  // as files spell it: "BF16"
std::optional<FileDType> file_dtype_from_name(std::string_view name);

// Types with a way to f32: all but the sub-byte, 8-bit float and complex ones.
bool converts_to_f32(FileDType dtype);
// Types with a way from f32: the floats of 16, 32 and 64 bits.
bool converts_from_f32(FileDType dtype);

// Elements [first, first + out.size()) of `data`; the range must lie inside. Nothing aligns `data`.
void read_f32(FileDType dtype, std::span<const std::byte> data, std::int64_t first, std::span<float> out);
// Rounds to nearest even; `out` holds exactly the elements of `values`.
void write_f32(FileDType dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace plimsoll::formats

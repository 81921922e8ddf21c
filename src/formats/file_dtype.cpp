#include "formats/file_dtype.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"

namespace plimsoll::formats {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian and read in place");

namespace {

struct Row {
  FileDType dtype;
  std::string_view name;
  std::int64_t bits;
  bool to_f32;
  bool from_f32;
};

constexpr std::array<Row, 22> kRows{{
    {FileDType::boolean, "BOOL", 8, true, false},
    {FileDType::f4, "F4", 4, false, false},
    {FileDType::f6_e2m3, "F6_E2M3", 6, false, false},
    {FileDType::f6_e3m2, "F6_E3M2", 6, false, false},
    {FileDType::u8, "U8", 8, true, false},
    {FileDType::i8, "I8", 8, true, false},
    {FileDType::f8_e5m2, "F8_E5M2", 8, false, false},
    {FileDType::f8_e4m3, "F8_E4M3", 8, false, false},
    {FileDType::f8_e8m0, "F8_E8M0", 8, false, false},
    {FileDType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8, false, false},
    {FileDType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8, false, false},
    {FileDType::i16, "I16", 16, true, false},
    {FileDType::u16, "U16", 16, true, false},
    {FileDType::f16, "F16", 16, true, true},
    {FileDType::bf16, "BF16", 16, true, true},
    {FileDType::i32, "I32", 32, true, false},
    {FileDType::u32, "U32", 32, true, false},
    {FileDType::f32, "F32", 32, true, true},
    {FileDType::c64, "C64", 64, false, false},
    {FileDType::f64, "F64", 64, true, true},
    {FileDType::i64, "I64", 64, true, false},
    {FileDType::u64, "U64", 64, true, false},
}};

const Row& row(FileDType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  PLIMSOLL_CHECK(index < kRows.size() && kRows[index].dtype == dtype, "file dtype {}", index);
  return kRows[index];
}

// Half to single without branches, so that the loop over it becomes vector code on every machine; the compiler's own
// conversion is a library call where the instruction set lacks one. It makes no f32 subnormals on the way, because a
// thread may run with those flushed to zero.
float f32_from_half(std::uint16_t half) {
  constexpr std::uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7FFFu;
  const std::uint32_t shifted = magnitude << 13;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(kSmallestNormal + shifted) - std::bit_cast<float>(kSmallestNormal));
  const std::uint32_t normal = shifted + ((127u - 15u) << 23);
  const std::uint32_t special = shifted + ((255u - 31u) << 23);
  const std::uint32_t bits = magnitude >= 0x7C00u ? special : magnitude >= 0x0400u ? normal : subnormal;
  return std::bit_cast<float>(bits | sign);
}

template <typename T, typename Convert>
void convert_each(const std::byte* from, std::span<float> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    out[i] = convert(value);
  }
}

template <typename T>
void convert_plain(const std::byte* from, std::span<float> out) {
  convert_each<T>(from, out, [](T value) { return static_cast<float>(value); });
}

template <typename T, typename Convert>
void store_each(std::span<const float> values, std::byte* to, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = convert(values[i]);
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace

std::int64_t bits_of(FileDType dtype) { return row(dtype).bits; }
std::string_view name_of(FileDType dtype) { return row(dtype).name; }
bool converts_to_f32(FileDType dtype) { return row(dtype).to_f32; }
bool converts_from_f32(FileDType dtype) { return row(dtype).from_f32; }

std::optional<FileDType> file_dtype_from_name(std::string_view name) {
  for (const Row& candidate : kRows) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

void read_f32(FileDType dtype, std::span<const std::byte> data, std::int64_t first, std::span<float> out) {
  PLIMSOLL_CHECK(converts_to_f32(dtype), "{} to f32", name_of(dtype));
  const std::int64_t size = bits_of(dtype) / 8;
  PLIMSOLL_CHECK(first >= 0 && (first + std::ssize(out)) * size <= std::ssize(data), "elements {}+{} of {} bytes of {}", first, out.size(),
                 data.size(), name_of(dtype));
  if (out.empty()) return;
  const std::byte* from = data.data() + first * size;
  switch (dtype) {
    case FileDType::f32: std::memcpy(out.data(), from, out.size_bytes()); return;
    case FileDType::bf16: return convert_each<std::uint16_t>(from, out, base::f32_from_bf16);
    case FileDType::f16: return convert_each<std::uint16_t>(from, out, f32_from_half);
    case FileDType::f64: return convert_plain<double>(from, out);
    case FileDType::i64: return convert_plain<std::int64_t>(from, out);
    case FileDType::u64: return convert_plain<std::uint64_t>(from, out);
    case FileDType::i32: return convert_plain<std::int32_t>(from, out);
    case FileDType::u32: return convert_plain<std::uint32_t>(from, out);
    case FileDType::i16: return convert_plain<std::int16_t>(from, out);
    case FileDType::u16: return convert_plain<std::uint16_t>(from, out);
    case FileDType::i8: return convert_plain<std::int8_t>(from, out);
    case FileDType::u8: return convert_plain<std::uint8_t>(from, out);
    case FileDType::boolean: return convert_each<std::uint8_t>(from, out, [](std::uint8_t value) { return value != 0 ? 1.0F : 0.0F; });
    default: break;
  }
  PLIMSOLL_CHECK(false, "{} to f32", name_of(dtype));
}

void write_f32(FileDType dtype, std::span<const float> values, std::span<std::byte> out) {
  PLIMSOLL_CHECK(converts_from_f32(dtype), "f32 to {}", name_of(dtype));
  PLIMSOLL_CHECK(std::ssize(out) == std::ssize(values) * bits_of(dtype) / 8, "{} values of {} into {} bytes", values.size(), name_of(dtype),
                 out.size());
  if (values.empty()) return;
  switch (dtype) {
    case FileDType::f32: std::memcpy(out.data(), values.data(), values.size_bytes()); return;
    case FileDType::bf16: return store_each<std::uint16_t>(values, out.data(), base::bf16_from_f32);
    case FileDType::f16: return store_each<std::uint16_t>(values, out.data(), base::f16_from_f32);
    case FileDType::f64: return store_each<double>(values, out.data(), [](float value) { return static_cast<double>(value); });
    default: break;
  }
  PLIMSOLL_CHECK(false, "f32 to {}", name_of(dtype));
}

}  // namespace plimsoll::formats

#include "base/dtype.h"

#include <array>

#include "base/error.h"

namespace plimsoll::base {

namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::int64_t size;
  bool is_float;
};

constexpr std::array<Row, 9> kTypes{{
    {DType::f32, "f32", 4, true},
    {DType::bf16, "bf16", 2, true},
    {DType::f16, "f16", 2, true},
    {DType::f8e4m3, "f8e4m3", 1, true},
    {DType::f8e5m2, "f8e5m2", 1, true},
    {DType::i32, "i32", 4, false},
    {DType::i64, "i64", 8, false},
    {DType::u16, "u16", 2, false},
    {DType::u8, "u8", 1, false},
}};

const Row& row(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  PLIMSOLL_CHECK(index < kTypes.size() && kTypes[index].dtype == dtype, "dtype {}", index);
  return kTypes[index];
}

}  // namespace

std::int64_t size_of(DType dtype) { return row(dtype).size; }
std::string_view name_of(DType dtype) { return row(dtype).name; }
bool is_float(DType dtype) { return row(dtype).is_float; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& candidate : kTypes) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

}  // namespace plimsoll::base

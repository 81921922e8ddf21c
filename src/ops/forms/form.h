// Forms in which tensors are stored: weights that are not trained, optimizer states, kept activations, what a codec sends.
//
// A form says how elements become bytes; it is not an element type. Records hold several elements and their scale, so what is stored is a
// tensor of u8 whose last dim counts bytes. So types, views, shards and files need no fractions of a byte, and every part of a plan that
// moves tensors moves stored ones too. Each form is one header of this folder; bf16 (an element type too) and split (two tensors) are
// not made of records, and have functions of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/shape.h"
#include "ops/forms/fp8.h"
#include "ops/forms/int4.h"
#include "ops/forms/int8.h"

namespace plimsoll::ops {

enum class Form : std::uint8_t { int8, fp8, int4 };

// Every form's block divides it.
inline constexpr std::int64_t kMostBlock = 64;

struct FormInfo {
  Form form;
  std::string_view name;
  std::int64_t block;   // elements of a record
  std::int64_t record;  // bytes
  // One block to one record, and back.
  void (*encode)(const float* values, std::uint8_t* record);
  void (*decode)(const std::uint8_t* record, float* values);

  std::int64_t records(std::int64_t columns) const { return (columns + block - 1) / block; }
  std::int64_t bytes(std::int64_t columns) const { return records(columns) * record; }
};

std::span<const FormInfo> forms();
const FormInfo& info_of(Form form);
std::optional<Form> form_named(std::string_view name);
inline std::string_view name_of(Form form) { return info_of(form).name; }

// The type of a tensor of that shape when it is stored.
base::TensorType stored_type(Form form, const base::Shape& shape);

// Rows of `columns` elements to their records, and back; as many as `values` holds.
void encode_rows(Form form, std::int64_t columns, std::span<const float> values, std::span<std::uint8_t> stored);
void decode_rows(Form form, std::int64_t columns, std::span<const std::uint8_t> stored, std::span<float> values);

// use(BlockForm<..>{}) of the form.
template <typename Use>
auto with_form(Form form, Use&& use) {
  switch (form) {
    case Form::int8: return use(BlockForm<Int8Codes>{});
    case Form::fp8: return use(BlockForm<Fp8Codes>{});
    case Form::int4: break;
  }
  return use(BlockForm<Int4Codes>{});
}

}  // namespace plimsoll::ops

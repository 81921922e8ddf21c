// Forms in which tensors are stored: weights that are not trained, optimizer states, kept activations, what a codec sends.
//
// A form says how elements become bytes; it is not an element type. Records hold several elements and their scale, so what is stored is a
// tensor of u8 whose last dim counts bytes. So types, views, shards and files need no fractions of a byte, and every part of a plan that
// moves tensors moves stored ones too. `encode` and `decode` (ops/encode.h) name a row of a table of forms: ours (all.h), or one that
// other code fills in. bf16 (an element type too) and split (two tensors) are not made of records, and have functions of their own.
//
//   constexpr ops::FormInfo kMine = ops::form_row<MyCodes>();            // from how one element is coded (block_codes.h), or
//   constexpr ops::FormInfo kOther{.name = "signs", .block = 64, .record = 10, .encode = {{signs_of}}, .decode = {{elements_of}}};
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/row_code.h"
#include "base/shape.h"

namespace plimsoll::ops {

// Every form's block divides it, and it divides what shards of a tensor are multiples of: no record is in two shards.
inline constexpr std::int64_t kMostBlock = 1024;

struct FormInfo {
  std::string_view name;    // in printed operators, and behind a weight's name in checkpoints
  std::int64_t block = 0;   // elements of a record
  std::int64_t record = 0;  // bytes
  // So many whole blocks to as many records, and back.
  base::CodeOf<void (*)(const float* values, std::int64_t blocks, std::uint8_t* records)> encode{};
  base::CodeOf<void (*)(const std::uint8_t* records, std::int64_t blocks, float* values)> decode{};

  std::int64_t records(std::int64_t columns) const { return (columns + block - 1) / block; }
  std::int64_t bytes(std::int64_t columns) const { return records(columns) * record; }
  // Neighbours in a row; the last record may stand for fewer elements than others.
  void encode_row(std::span<const float> values, std::uint8_t* stored) const;
  void decode_row(const std::uint8_t* stored, std::span<float> values) const;
};

std::span<const FormInfo> forms();

// nullptr: there is none.
const FormInfo* find_form(std::string_view name);
// One that there is.
const FormInfo& form_named(std::string_view name);

// The type of a tensor of that shape when it is stored.
base::TensorType stored_type(const FormInfo& form, const base::Shape& shape);

// Rows of `columns` elements to their records, and back; as many as `values` holds.
void encode_rows(const FormInfo& form, std::int64_t columns, std::span<const float> values, std::span<std::uint8_t> stored);
void decode_rows(const FormInfo& form, std::int64_t columns, std::span<const std::uint8_t> stored, std::span<float> values);

}  // namespace plimsoll::ops

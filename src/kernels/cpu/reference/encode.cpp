// Stored forms by what their headers say of them, not by their functions: scales and codes as numbers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/convert.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

using base::DType;

// The largest code, and how a number between two is rounded.
double largest_code(ops::Form form) {
  switch (form) {
    case ops::Form::int8: return 127.0;
    case ops::Form::fp8: return 448.0;
    case ops::Form::int4: return 7.0;
  }
  return 0.0;
}

double nearest_code(ops::Form form, double ratio) { return form == ops::Form::fp8 ? rounded(ratio, DType::f8e4m3) : std::nearbyint(ratio); }

// How a code is written: two's complement, an e4m3 number, or with 8 added.
std::uint8_t byte_of(ops::Form form, double code) {
  if (form == ops::Form::int4) return static_cast<std::uint8_t>(code + 8.0);
  if (form == ops::Form::int8) return static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
  std::uint8_t byte = 0;
  store({base::Shape{1}, {code}}, &byte, {DType::f8e4m3, base::Shape{1}});
  return byte;
}

double code_of(ops::Form form, std::uint8_t byte) {
  if (form == ops::Form::int4) return static_cast<double>(byte) - 8.0;
  if (form == ops::Form::int8) return static_cast<double>(static_cast<std::int8_t>(byte));
  return load(&byte, {DType::f8e4m3, base::Shape{1}})[0];
}

// The scale of a block in bf16; both divisions of a form are in f32.
double scale_of(ops::Form form, const std::vector<double>& block) {
  double largest = 0.0;
  for (const double value : block) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : std::nan("");
  const float scale = static_cast<float>(largest) / static_cast<float>(largest_code(form));
  return std::isnan(largest) ? largest : rounded(static_cast<double>(scale), DType::bf16);
}

double ratio_of(ops::Form form, double value, double scale) {
  const float ratio = static_cast<float>(value) / static_cast<float>(scale == 0.0 ? 1.0 : scale);
  const double most = largest_code(form);
  return std::isnan(ratio) ? most : std::clamp(static_cast<double>(ratio), -most, most);
}

}  // namespace

Results compute(const ops::Encode& op, Operands operands) {
  const RefTensor& x = tensor(operands[0]);
  const ops::FormInfo& form = ops::info_of(op.form);
  const std::int64_t per_byte = op.form == ops::Form::int4 ? 2 : 1;
  RefTensor stored(ops::stored_type(op.form, x.shape).shape);
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t number = 0; number < form.records(x.columns()); ++number) {
      std::vector<double> block(static_cast<std::size_t>(form.block), 0.0);
      for (std::int64_t i = 0; i < form.block && number * form.block + i < x.columns(); ++i)
        block[static_cast<std::size_t>(i)] = x.at(row, number * form.block + i);
      const double scale = scale_of(op.form, block);
      double* record = &stored.at(row, number * form.record);
      for (std::int64_t i = 0; i < form.block; ++i) {
        const double code = nearest_code(op.form, ratio_of(op.form, block[static_cast<std::size_t>(i)], scale));
        record[i / per_byte] += byte_of(op.form, code) * (i % per_byte == 0 ? 1.0 : 16.0);
      }
      std::uint16_t bits = 0x7FC0;
      if (!std::isnan(scale)) store({base::Shape{1}, {scale}}, &bits, {DType::bf16, base::Shape{1}});
      record[form.block / per_byte] = bits & 0xFF;
      record[form.block / per_byte + 1] = bits >> 8;
    }
  }
  return {std::move(stored)};
}

Results compute(const ops::Decode& op, Operands operands) {
  const RefTensor& stored = tensor(operands[0]);
  const ops::FormInfo& form = ops::info_of(op.form);
  const std::int64_t per_byte = op.form == ops::Form::int4 ? 2 : 1;
  RefTensor y(with_last(stored.shape, op.columns));
  for (std::int64_t row = 0; row < y.rows(); ++row) {
    for (std::int64_t column = 0; column < op.columns; ++column) {
      const double* record = &stored.values[static_cast<std::size_t>(row * stored.columns() + column / form.block * form.record)];
      const double* scale_bytes = record + form.block / per_byte;
      const auto bits = static_cast<std::uint16_t>(scale_bytes[0] + 256.0 * scale_bytes[1]);
      const std::int64_t i = column % form.block;
      const auto byte = static_cast<unsigned>(record[i / per_byte]);
      const auto code = static_cast<std::uint8_t>(per_byte == 1 ? byte : (i % 2 == 0 ? byte & 0xFu : byte >> 4));
      y.at(row, column) = code_of(op.form, code) * load(&bits, {DType::bf16, base::Shape{1}})[0];
    }
  }
  return {std::move(y)};
}

}  // namespace plimsoll::kernels::cpu::reference

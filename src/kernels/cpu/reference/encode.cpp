// Stored forms by what their headers say of them, not by their functions: scales and codes as numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/dtype.h"
#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/convert.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

using base::DType;

// How the codes of a form go: the largest, the nearest to a number, and how one is written.
struct Codes {
  std::string_view form;
  double largest;
  std::int64_t per_byte;
  double (*nearest)(double ratio);
  std::uint8_t (*byte_of)(double code);
  double (*code_of)(std::uint8_t byte);
};

double nearest_e4m3(double ratio) { return rounded(ratio, DType::f8e4m3); }
double nearest_integer(double ratio) { return std::nearbyint(ratio); }
std::uint8_t e4m3_byte(double code) {
  std::uint8_t byte = 0;
  store({base::Shape{1}, {code}}, &byte, {DType::f8e4m3, base::Shape{1}});
  return byte;
}
double e4m3_code(std::uint8_t byte) { return load(&byte, {DType::f8e4m3, base::Shape{1}})[0]; }
// Two's complement, and with 8 added.
std::uint8_t signed_byte(double code) { return static_cast<std::uint8_t>(static_cast<std::int8_t>(code)); }
double signed_code(std::uint8_t byte) { return static_cast<double>(static_cast<std::int8_t>(byte)); }
std::uint8_t raised_byte(double code) { return static_cast<std::uint8_t>(code + 8.0); }
double raised_code(std::uint8_t byte) { return static_cast<double>(byte) - 8.0; }

constexpr std::array kCodes{Codes{"int8", 127.0, 1, nearest_integer, signed_byte, signed_code},
                            Codes{"fp8", 448.0, 1, nearest_e4m3, e4m3_byte, e4m3_code},
                            Codes{"int4", 7.0, 2, nearest_integer, raised_byte, raised_code}};

// Null for a form that is declared elsewhere: its own plain functions say what it is.
const Codes* codes_of(const ops::FormInfo& form) {
  const auto found = std::find_if(kCodes.begin(), kCodes.end(), [&](const Codes& codes) { return codes.form == form.name; });
  return found == kCodes.end() ? nullptr : &*found;
}

// The scale of a block in bf16; both divisions of a form are in f32.
double scale_of(const Codes& codes, std::span<const float> block) {
  double largest = 0.0;
  for (const float value : block) largest = std::isfinite(value) ? std::max(largest, static_cast<double>(std::abs(value))) : std::nan("");
  const float scale = static_cast<float>(largest) / static_cast<float>(codes.largest);
  return std::isnan(largest) ? largest : rounded(static_cast<double>(scale), DType::bf16);
}

double ratio_of(const Codes& codes, float value, double scale) {
  const float ratio = value / static_cast<float>(scale == 0.0 ? 1.0 : scale);
  return std::isnan(ratio) ? codes.largest : std::clamp(static_cast<double>(ratio), -codes.largest, codes.largest);
}

void encode_block(const ops::FormInfo& form, std::span<const float> block, std::span<std::uint8_t> record) {
  const Codes* codes = codes_of(form);
  if (codes == nullptr) return form.encode.of(base::RowCode::plain)(block.data(), 1, record.data());
  const double scale = scale_of(*codes, block);
  const std::int64_t code_bytes = form.block / codes->per_byte;
  std::fill(record.begin(), record.end(), std::uint8_t{0});
  for (std::int64_t i = 0; i < form.block; ++i) {
    const double code = codes->nearest(ratio_of(*codes, block[static_cast<std::size_t>(i)], scale));
    const unsigned shift = i % codes->per_byte == 0 ? 0 : 4;
    record[static_cast<std::size_t>(i / codes->per_byte)] |= static_cast<std::uint8_t>(codes->byte_of(code) << shift);
  }
  std::uint16_t bits = 0x7FC0;
  if (!std::isnan(scale)) store({base::Shape{1}, {scale}}, &bits, {DType::bf16, base::Shape{1}});
  record[static_cast<std::size_t>(code_bytes)] = bits & 0xFF;
  record[static_cast<std::size_t>(code_bytes) + 1] = static_cast<std::uint8_t>(bits >> 8);
}

void decode_block(const ops::FormInfo& form, std::span<const std::uint8_t> record, std::span<float> block) {
  const Codes* codes = codes_of(form);
  if (codes == nullptr) return form.decode.of(base::RowCode::plain)(record.data(), 1, block.data());
  const auto code_bytes = static_cast<std::size_t>(form.block / codes->per_byte);
  const auto bits = static_cast<std::uint16_t>(record[code_bytes] | record[code_bytes + 1] << 8);
  const double scale = load(&bits, {DType::bf16, base::Shape{1}})[0];
  for (std::int64_t i = 0; i < form.block; ++i) {
    const unsigned byte = record[static_cast<std::size_t>(i / codes->per_byte)];
    const auto code = static_cast<std::uint8_t>(codes->per_byte == 1 ? byte : (i % 2 == 0 ? byte & 0xFu : byte >> 4));
    block[static_cast<std::size_t>(i)] = static_cast<float>(codes->code_of(code) * scale);
  }
}

}  // namespace

Results compute(const ops::Encode& op, Operands operands) {
  const RefTensor& x = tensor(operands[0]);
  const ops::FormInfo& form = *op.form;
  RefTensor stored(ops::stored_type(form, x.shape).shape);
  std::vector<float> block(static_cast<std::size_t>(form.block));
  std::vector<std::uint8_t> record(static_cast<std::size_t>(form.record));
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t number = 0; number < form.records(x.columns()); ++number) {
      for (std::int64_t i = 0; i < form.block; ++i) {
        const std::int64_t column = number * form.block + i;
        block[static_cast<std::size_t>(i)] = column < x.columns() ? static_cast<float>(x.at(row, column)) : 0.0f;
      }
      encode_block(form, block, record);
      std::copy(record.begin(), record.end(), &stored.at(row, number * form.record));
    }
  }
  return {std::move(stored)};
}

Results compute(const ops::Decode& op, Operands operands) {
  const RefTensor& stored = tensor(operands[0]);
  const ops::FormInfo& form = *op.form;
  RefTensor y(with_last(stored.shape, op.columns));
  std::vector<float> block(static_cast<std::size_t>(form.block));
  std::vector<std::uint8_t> record(static_cast<std::size_t>(form.record));
  for (std::int64_t row = 0; row < y.rows(); ++row) {
    for (std::int64_t number = 0; number < form.records(op.columns); ++number) {
      const double* bytes = &stored.values[static_cast<std::size_t>(row * stored.columns() + number * form.record)];
      std::transform(bytes, bytes + form.record, record.begin(), [](double byte) { return static_cast<std::uint8_t>(byte); });
      decode_block(form, record, block);
      const std::int64_t first = number * form.block;
      std::copy_n(block.begin(), std::min(form.block, op.columns - first), &y.at(row, first));
    }
  }
  return {std::move(y)};
}

}  // namespace plimsoll::kernels::cpu::reference

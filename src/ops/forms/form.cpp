#include "ops/forms/form.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/forms/all.h"
#include "ops/forms/form_row.h"

namespace plimsoll::ops {

namespace {

template <typename... Codes>
constexpr std::array<FormInfo, sizeof...(Codes)> rows_of(FormList<Codes...>) {
  return {form_row<Codes>()...};
}

constexpr auto kForms = rows_of(AllForms{});

std::int64_t rows_in(const FormInfo& form, std::int64_t columns, std::size_t elements, std::size_t stored) {
  const std::int64_t rows = columns > 0 ? static_cast<std::int64_t>(elements) / columns : 0;
  PLIMSOLL_CHECK(rows * columns == static_cast<std::int64_t>(elements) && rows * form.bytes(columns) == static_cast<std::int64_t>(stored),
                 "{} elements in rows of {} for {} bytes of {}", elements, columns, stored, form.name);
  return rows;
}

}  // namespace

std::span<const FormInfo> forms() { return kForms; }

const FormInfo* find_form(std::string_view name) {
  const auto found = std::find_if(kForms.begin(), kForms.end(), [&](const FormInfo& form) { return form.name == name; });
  return found == kForms.end() ? nullptr : &*found;
}

const FormInfo& form_named(std::string_view name) {
  const FormInfo* form = find_form(name);
  PLIMSOLL_CHECK(form != nullptr, "there is no form {}", name);
  return *form;
}

void FormInfo::encode_row(std::span<const float> values, std::uint8_t* stored) const {
  const std::int64_t whole = std::ssize(values) / block, rest = std::ssize(values) % block;
  encode.here()(values.data(), whole, stored);
  if (rest == 0) return;
  alignas(64) std::array<float, kMostBlock> last;
  std::fill(std::copy_n(values.end() - rest, rest, last.begin()), last.begin() + block, 0.0f);
  encode.here()(last.data(), 1, stored + whole * record);
}

void FormInfo::decode_row(const std::uint8_t* stored, std::span<float> values) const {
  const std::int64_t whole = std::ssize(values) / block, rest = std::ssize(values) % block;
  decode.here()(stored, whole, values.data());
  if (rest == 0) return;
  alignas(64) std::array<float, kMostBlock> last;
  decode.here()(stored + whole * record, 1, last.data());
  std::copy_n(last.begin(), rest, values.end() - rest);
}

base::TensorType stored_type(const FormInfo& form, const base::Shape& shape) {
  base::Shape stored = shape;
  stored.set(-1, form.bytes(shape[-1]));
  return {base::DType::u8, stored};
}

void encode_rows(const FormInfo& form, std::int64_t columns, std::span<const float> values, std::span<std::uint8_t> stored) {
  const std::int64_t rows = rows_in(form, columns, values.size(), stored.size());
  for (std::int64_t row = 0; row < rows; ++row)
    form.encode_row(values.subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns)),
                    stored.data() + row * form.bytes(columns));
}

void decode_rows(const FormInfo& form, std::int64_t columns, std::span<const std::uint8_t> stored, std::span<float> values) {
  const std::int64_t rows = rows_in(form, columns, values.size(), stored.size());
  for (std::int64_t row = 0; row < rows; ++row)
    form.decode_row(stored.data() + row * form.bytes(columns),
                    values.subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns)));
}

}  // namespace plimsoll::ops

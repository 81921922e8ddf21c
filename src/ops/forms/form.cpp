#include "ops/forms/form.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace plimsoll::ops {

namespace {

template <typename Block>
constexpr FormInfo row(Form form, std::string_view name) {
  static_assert(kMostBlock % Block::kBlock == 0, "a record would be in two shards");
  return {.form = form,
          .name = name,
          .block = Block::kBlock,
          .record = Block::kRecord,
          .encode = [](const float* values, std::uint8_t* record) { Block::encode(values, record); },
          .decode = Block::decode};
}

constexpr std::array kForms{
    row<BlockForm<Int8Codes>>(Form::int8, "int8"),
    row<BlockForm<Fp8Codes>>(Form::fp8, "fp8"),
    row<BlockForm<Int4Codes>>(Form::int4, "int4"),
};

// Calls block(values, record, elements) for every record of whole rows.
template <typename Block>
void for_each_record(const FormInfo& info, std::int64_t columns, std::int64_t elements, std::size_t stored, const Block& block) {
  PLIMSOLL_CHECK(columns > 0 && elements % columns == 0 && info.bytes(columns) * (elements / columns) == static_cast<std::int64_t>(stored),
                 "{} elements in rows of {} for {} bytes of {}", elements, columns, stored, info.name);
  std::int64_t record = 0;
  for (std::int64_t row = 0; row < elements; row += columns) {
    for (std::int64_t first = 0; first < columns; first += info.block, record += info.record)
      block(row + first, record, std::min(info.block, columns - first));
  }
}

}  // namespace

std::span<const FormInfo> forms() { return kForms; }

const FormInfo& info_of(Form form) { return kForms.at(static_cast<std::size_t>(form)); }

std::optional<Form> form_named(std::string_view name) {
  for (const FormInfo& info : kForms) {
    if (info.name == name) return info.form;
  }
  return std::nullopt;
}

base::TensorType stored_type(Form form, const base::Shape& shape) {
  base::Shape stored = shape;
  stored.set(-1, info_of(form).bytes(shape[-1]));
  return {base::DType::u8, stored};
}

void encode_rows(Form form, std::int64_t columns, std::span<const float> values, std::span<std::uint8_t> stored) {
  const FormInfo& info = info_of(form);
  for_each_record(info, columns, std::ssize(values), stored.size(), [&](std::int64_t first, std::int64_t record, std::int64_t count) {
    std::array<float, kMostBlock> block{};
    std::copy_n(values.begin() + first, count, block.begin());
    info.encode(block.data(), stored.data() + record);
  });
}

void decode_rows(Form form, std::int64_t columns, std::span<const std::uint8_t> stored, std::span<float> values) {
  const FormInfo& info = info_of(form);
  for_each_record(info, columns, std::ssize(values), stored.size(), [&](std::int64_t first, std::int64_t record, std::int64_t count) {
    std::array<float, kMostBlock> block{};
    info.decode(stored.data() + record, block.data());
    std::copy_n(block.begin(), count, values.begin() + first);
  });
}

}  // namespace plimsoll::ops

#include "data/batch.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll::data {

namespace {

template <typename T>
std::span<T> view_of(const BatchField* field, base::DType dtype) {
  if (field == nullptr) return {};
  PLIMSOLL_CHECK(field->type.dtype == dtype, "input {} is {}", field->name, base::to_string(field->type));
  return {reinterpret_cast<T*>(field->bytes.data()), field->bytes.size() / sizeof(T)};
}

BatchField field_of(std::string name, base::DType dtype, std::int64_t rows, std::span<std::byte> bytes, std::size_t elements) {
  PLIMSOLL_CHECK(rows > 0 && elements % static_cast<std::size_t>(rows) == 0, "{} elements for {} rows", elements, rows);
  return {std::move(name), {dtype, base::Shape{rows, static_cast<std::int64_t>(elements) / rows}}, bytes};
}

}  // namespace

const BatchField* BatchView::find(std::string_view name) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const BatchField& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

std::span<std::int32_t> BatchView::ids(std::string_view name) const { return view_of<std::int32_t>(find(name), base::DType::i32); }
std::span<float> BatchView::numbers(std::string_view name) const { return view_of<float>(find(name), base::DType::f32); }

BatchView& BatchView::add(std::string name, std::span<std::int32_t> ids) {
  fields.push_back(field_of(std::move(name), base::DType::i32, rows, std::as_writable_bytes(ids), ids.size()));
  return *this;
}

BatchView& BatchView::add(std::string name, std::span<float> numbers) {
  fields.push_back(field_of(std::move(name), base::DType::f32, rows, std::as_writable_bytes(numbers), numbers.size()));
  return *this;
}

}  // namespace plimsoll::data

// Attributes as text: "(depth=2, dtype=bf16)". A struct that visits its fields by name is printed and read with these; what differs from
// the struct as it comes is printed, and what is not printed comes so. Operators use them, and whatever else a graph's printed form has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"
#include "ops/attributes.h"
#include "ops/forms/form.h"
#include "ops/masks/mask.h"
#include "ops/state.h"

namespace plimsoll::ops {

std::string text_of(bool value);
std::string text_of(int value);
std::string text_of(std::int64_t value);
std::string text_of(std::uint64_t value);
std::string text_of(float value);
std::string text_of(double value);
std::string text_of(const std::vector<double>& value);
std::string text_of(base::DType value);
std::string text_of(const std::optional<base::DType>& value);
std::string text_of(ActivationKind value);
std::string text_of(NormKind value);
std::string text_of(const Axis& value);
std::string text_of(const std::vector<Axis>& value);
std::string text_of(Tier value);
std::string text_of(CollectiveKind value);
std::string text_of(const FormInfo* value);
std::string text_of(State::Cut value);
std::string text_of(State::Merge value);
std::string text_of(State::Written value);
std::string text_of(const base::Shape& value);
std::string text_of(const Heads& value);
std::string text_of(const MaskPattern& value);

// The inverse; bad_input on anything else.
void parse_into(std::string_view text, bool& value);
void parse_into(std::string_view text, int& value);
void parse_into(std::string_view text, std::int64_t& value);
void parse_into(std::string_view text, std::uint64_t& value);
void parse_into(std::string_view text, float& value);
void parse_into(std::string_view text, double& value);
void parse_into(std::string_view text, std::vector<double>& value);
void parse_into(std::string_view text, base::DType& value);
void parse_into(std::string_view text, std::optional<base::DType>& value);
void parse_into(std::string_view text, ActivationKind& value);
void parse_into(std::string_view text, NormKind& value);
void parse_into(std::string_view text, Axis& value);
void parse_into(std::string_view text, std::vector<Axis>& value);
void parse_into(std::string_view text, Tier& value);
void parse_into(std::string_view text, CollectiveKind& value);
void parse_into(std::string_view text, const FormInfo*& value);
void parse_into(std::string_view text, State::Cut& value);
void parse_into(std::string_view text, State::Merge& value);
void parse_into(std::string_view text, State::Written& value);
void parse_into(std::string_view text, base::Shape& value);
void parse_into(std::string_view text, Heads& value);
void parse_into(std::string_view text, MaskPattern& value);

// "NAME(a=1, b=2)", or NAME alone. `fields(struct, visit)` calls visit(name, field) for each; fields as `plain` has them are left out.
template <typename T, typename Fields>
std::string with_fields(std::string_view name, const T& value, const Fields& fields, const T& plain = {}) {
  std::vector<std::string> defaults;
  fields(plain, [&](std::string_view, const auto& field) { defaults.push_back(text_of(field)); });
  std::string list;
  std::size_t index = 0;
  fields(value, [&](std::string_view field_name, const auto& field) {
    const std::string text = text_of(field);
    if (text != defaults[index++]) list += fmt::format("{}{}={}", list.empty() ? "" : ", ", field_name, text);
  });
  return list.empty() ? std::string(name) : fmt::format("{}({})", name, list);
}

// What stands before the parentheses, and in them.
struct NamedList {
  std::string_view name;
  std::string_view list = {};
};
NamedList named_list(std::string_view text);

// Of NAME(list), the list; `value` has what is left out.
template <typename T, typename Fields>
T fields_from(const NamedList& text, const Fields& fields, T value = {}) {
  std::string_view list = text.list;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    while (item.starts_with(' ')) item.remove_prefix(1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) base::bad_input("{}: found \"{}\"; expected NAME=VALUE", text.name, item);
    bool known = false;
    fields(value, [&](std::string_view name, auto& field) {
      if (name != item.substr(0, equals)) return;
      known = true;
      parse_into(item.substr(equals + 1), field);
    });
    if (!known) base::bad_input("{} has no attribute \"{}\"", text.name, item.substr(0, equals));
  }
  return value;
}

}  // namespace plimsoll::ops

// Text form of operators and the table of their definitions, both generated from the variant and the fields() of each
// attribute struct.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

constexpr std::array<std::string_view, 5> kActivationNames{"none", "gelu_tanh", "gelu_erf", "relu", "silu"};
constexpr std::array<std::string_view, 2> kNormNames{"layer", "rms"};
constexpr std::array<std::string_view, 3> kTierNames{"device", "host", "disk"};
constexpr std::array<std::string_view, kCollectiveKinds> kCollectiveNames{"all_reduce", "reduce_scatter", "all_gather",
                                                                          "reduce",     "broadcast",      "all_to_all"};

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::int64_t value) { return fmt::format("{}", value); }
std::string text_of(std::uint64_t value) { return fmt::format("{:#x}", value); }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(DType value) { return std::string(base::name_of(value)); }
std::string text_of(ActivationKind value) { return std::string(kActivationNames.at(static_cast<std::size_t>(value))); }
std::string text_of(NormKind value) { return std::string(kNormNames.at(static_cast<std::size_t>(value))); }
std::string text_of(const Axis& value) { return std::string(value.name()); }
std::string text_of(Tier value) { return std::string(name_of(value)); }
std::string text_of(CollectiveKind value) { return std::string(name_of(value)); }
std::string text_of(Form value) { return std::string(name_of(value)); }
std::string text_of(const base::Shape& value) {
  std::string text;
  for (std::int64_t extent : value.dims()) text += fmt::format("{}{}", text.empty() ? "" : ":", extent);
  return text;
}
std::string text_of(const Heads& value) { return fmt::format("{}:{}:{}", value.query, value.kv, value.dim); }

[[noreturn]] void bad_value(std::string_view text) {
  base::bad_input("operator attribute: found \"{}\", which is not a legal value", text);
}

template <typename Number>
Number number_from(std::string_view text, int number_base = 10) {
  Number value{};
  std::from_chars_result result{};
  if constexpr (std::is_floating_point_v<Number>) {
    result = std::from_chars(text.data(), text.data() + text.size(), value);
  } else {
    result = std::from_chars(text.data(), text.data() + text.size(), value, number_base);
  }
  if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) bad_value(text);
  return value;
}

template <std::size_t kCount>
std::uint8_t index_from(std::string_view text, const std::array<std::string_view, kCount>& names) {
  for (std::size_t index = 0; index < kCount; ++index) {
    if (names[index] == text) return static_cast<std::uint8_t>(index);
  }
  bad_value(text);
}

void parse_into(std::string_view text, bool& value) {
  if (text != "true" && text != "false") bad_value(text);
  value = text == "true";
}
void parse_into(std::string_view text, std::int64_t& value) { value = number_from<std::int64_t>(text); }
void parse_into(std::string_view text, std::uint64_t& value) {
  if (!text.starts_with("0x")) bad_value(text);
  value = number_from<std::uint64_t>(text.substr(2), 16);
}
void parse_into(std::string_view text, double& value) { value = number_from<double>(text); }
void parse_into(std::string_view text, DType& value) {
  const std::optional<DType> dtype = base::dtype_from_name(text);
  if (!dtype) bad_value(text);
  value = *dtype;
}
void parse_into(std::string_view text, ActivationKind& value) { value = static_cast<ActivationKind>(index_from(text, kActivationNames)); }
void parse_into(std::string_view text, NormKind& value) { value = static_cast<NormKind>(index_from(text, kNormNames)); }
void parse_into(std::string_view text, Tier& value) { value = static_cast<Tier>(index_from(text, kTierNames)); }
// Which axes there are is for the plan's mesh to say.
void parse_into(std::string_view text, Axis& value) {
  const std::optional<Axis> axis = Axis::named(text);
  if (!axis) bad_value(text);
  value = *axis;
}
void parse_into(std::string_view text, CollectiveKind& value) { value = static_cast<CollectiveKind>(index_from(text, kCollectiveNames)); }
void parse_into(std::string_view text, Form& value) {
  const std::optional<Form> form = form_named(text);
  if (!form) bad_value(text);
  value = *form;
}
void parse_into(std::string_view text, base::Shape& value) {
  std::vector<std::int64_t> dims;
  double elements = 1.0;
  while (!text.empty()) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    dims.push_back(number_from<std::int64_t>(text.substr(0, colon)));
    elements *= static_cast<double>(dims.back());
    if (dims.back() < 0 || dims.size() > base::Shape::kMaxDims || elements > 1e17) bad_value(text);
    text = text.substr(std::min(colon + 1, text.size()));
  }
  value = base::Shape(std::span<const std::int64_t>(dims));
}
void parse_into(std::string_view text, Heads& value) {
  const std::size_t first = text.find(':');
  const std::size_t second = first == std::string_view::npos ? first : text.find(':', first + 1);
  if (second == std::string_view::npos) bad_value(text);
  parse_into(text.substr(0, first), value.query);
  parse_into(text.substr(first + 1, second - first - 1), value.kv);
  parse_into(text.substr(second + 1), value.dim);
  if (value.query < 1 || value.kv < 1 || value.dim < 1 || value.query % value.kv != 0) bad_value(text);
}

template <typename Attributes>
Attributes parse_attributes(std::string_view list) {
  Attributes attributes;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    while (item.starts_with(' ')) item.remove_prefix(1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) bad_value(item);
    bool known = false;
    Attributes::fields(attributes, [&](std::string_view name, auto& field) {
      if (name != item.substr(0, equals)) return;
      known = true;
      parse_into(item.substr(equals + 1), field);
    });
    if (!known) base::bad_input("operator {} has no attribute \"{}\"", Attributes::kName, item.substr(0, equals));
  }
  return attributes;
}

template <std::size_t... kIndex>
Op parse_named(std::string_view name, std::string_view attributes, std::index_sequence<kIndex...>) {
  std::optional<Op> parsed;
  ((std::variant_alternative_t<kIndex, Op>::kName == name &&
    (parsed = parse_attributes<std::variant_alternative_t<kIndex, Op>>(attributes), true)) ||
   ...);
  if (!parsed) base::bad_input("there is no operator \"{}\"", name);
  return *parsed;
}

template <std::size_t... kIndex>
std::array<Definition, sizeof...(kIndex)> all_definitions(std::index_sequence<kIndex...>) {
  return {define(std::variant_alternative_t<kIndex, Op>{})...};
}

using EveryOp = std::make_index_sequence<std::variant_size_v<Op>>;

}  // namespace

std::string_view name_of(Tier tier) { return kTierNames.at(static_cast<std::size_t>(tier)); }
std::string_view name_of(CollectiveKind kind) { return kCollectiveNames.at(static_cast<std::size_t>(kind)); }

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& attributes) { return std::decay_t<decltype(attributes)>::kName; }, op);
}

std::string to_string(const Op& op) {
  return std::visit(
      [](const auto& attributes) {
        using Attributes = std::decay_t<decltype(attributes)>;
        std::vector<std::string> defaults;
        const Attributes plain;
        Attributes::fields(plain, [&](std::string_view, const auto& field) { defaults.push_back(text_of(field)); });
        std::string list;
        std::size_t index = 0;
        Attributes::fields(attributes, [&](std::string_view name, const auto& field) {
          const std::string text = text_of(field);
          if (text != defaults[index++]) list += fmt::format("{}{}={}", list.empty() ? "" : ", ", name, text);
        });
        return list.empty() ? std::string(Attributes::kName) : fmt::format("{}({})", Attributes::kName, list);
      },
      op);
}

Op parse_op(std::string_view text) {
  const std::size_t open = text.find('(');
  if (open == std::string_view::npos) return parse_named(text, "", EveryOp{});
  if (!text.ends_with(')')) base::bad_input("operator \"{}\": expected a closing parenthesis", text);
  return parse_named(text.substr(0, open), text.substr(open + 1, text.size() - open - 2), EveryOp{});
}

const Definition& definition_of(const Op& op) {
  static const auto definitions = all_definitions(EveryOp{});
  return definitions[op.index()];
}

std::vector<Alias> aliases_of(const Op& op) {
  const auto aliases = definition_of(op).aliases;
  return aliases == nullptr ? std::vector<Alias>{} : aliases(op);
}

double bytes_of(Types inputs, Types outputs) {
  std::int64_t bytes = 0;
  for (const TensorType& type : inputs) bytes += type.bytes();
  for (const TensorType& type : outputs) bytes += type.bytes();
  return static_cast<double>(bytes);
}

void expect(bool condition, const Op& op, Types inputs, std::string_view expected) {
  if (condition) return;
  std::string found;
  for (const TensorType& type : inputs) found += (found.empty() ? "" : ", ") + base::to_string(type);
  base::bad_input("[{}] found operands ({}); expected {}", name_of(op), found, expected);
}

std::vector<TensorType> infer_like_first(const Op& op, Types inputs) {
  expect(!inputs.empty(), op, inputs, "at least one operand");
  return {inputs[0]};
}

PlacedOp place_whole(const PlacementQuery& query, std::size_t outputs) {
  return {query.op, std::vector<Placement>(query.inputs.size()), std::vector<Placement>(outputs)};
}

PlacedOp place_elementwise(const PlacementQuery& query, std::size_t outputs) {
  const auto split = std::find_if(query.inputs.begin(), query.inputs.end(), [](const Placement& p) { return p.spread == Spread::split; });
  Placement common = split == query.inputs.end() ? whole() : *split;
  if (split == query.inputs.end() && goes_by_rows(query)) common = rows_of(query);
  return {query.op, std::vector<Placement>(query.inputs.size(), common), std::vector<Placement>(outputs, common)};
}

bool goes_by_rows(const PlacementQuery& query) {
  return std::any_of(query.inputs.begin(), query.inputs.end(), [&](const Placement& placement) {
    return placement.spread == Spread::rows || (query.by_rows && placement.spread == Spread::partial);
  });
}

Placement rows_of(const PlacementQuery& query) { return rows(query.types[0].shape.rows()); }

bool last_is_split(const PlacementQuery& query, std::size_t input) {
  return query.inputs[input].spread == Spread::split && query.inputs[input].dim == query.types[input].shape.rank() - 1;
}

Heads heads_here(const Heads& heads, const Seat& seat) {
  if (seat.members > heads.kv) return {.query = heads.query / seat.members, .kv = 1, .dim = heads.dim};
  const std::int64_t kv = seat.units_here(heads.kv);
  return {.query = kv * heads.per_group(), .kv = kv, .dim = heads.dim};
}

std::vector<Alias> may_overwrite_first(const Op&) { return {{.output = 0, .input = 0, .required = false}}; }

std::vector<Alias> accumulator_aliases(bool accumulate, int first_output, int count, int plain_inputs) {
  std::vector<Alias> aliases;
  for (int index = 0; accumulate && index < count; ++index) {
    aliases.push_back({.output = first_output + index, .input = plain_inputs + index, .required = true});
  }
  return aliases;
}

void expect_accumulators(const Op& op, Types inputs, std::size_t plain_inputs, Types gradients) {
  expect(inputs.size() == plain_inputs + gradients.size(), op, inputs, "one accumulator per gradient behind the operands");
  for (std::size_t index = 0; index < gradients.size(); ++index) {
    expect(inputs[plain_inputs + index] == gradients[index], op, inputs, "accumulators of the gradients' types");
  }
}

}  // namespace plimsoll::ops

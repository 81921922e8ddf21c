// Text form of operators and the table of their definitions, both generated from the variant and the fields() of each
// attribute struct.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "ops/families.h"
#include "ops/fields.h"
#include "ops/optim/rules.h"

namespace plimsoll::ops {

namespace {

// The fields of a struct of attributes.
constexpr auto kFields = [](auto& attributes, auto&& visit) { std::decay_t<decltype(attributes)>::fields(attributes, visit); };

// Operators that name a row of a table have its name and its defaults.
template <typename Attributes>
Attributes plain_of(const Attributes&) {
  return {};
}
Update plain_of(const Update& update) { return update.plain(); }
UpdatePrelude plain_of(const UpdatePrelude& prelude) { return prelude.plain(); }
template <typename Attributes>
std::string printed_name_of(const Attributes&) {
  return std::string(Attributes::kName);
}
std::string printed_name_of(const Update& update) { return update.printed_name(); }
std::string printed_name_of(const UpdatePrelude& prelude) { return prelude.printed_name(); }

// The operator of this type that goes by a rule and is printed by that name.
template <typename ByRule>
std::optional<Op> parse_by_rule(const NamedList& text) {
  for (const UpdateRule& rule : update_rules()) {
    if (const ByRule plain = ByRule::by(rule); text.name == plain.printed_name()) return fields_from<ByRule>(text, kFields, plain);
  }
  return std::nullopt;
}

template <std::size_t... kIndex>
Op parse_named(const NamedList& text, std::index_sequence<kIndex...>) {
  if (const std::optional<Op> update = parse_by_rule<Update>(text)) return *update;
  if (const std::optional<Op> prelude = parse_by_rule<UpdatePrelude>(text)) return *prelude;
  std::optional<Op> parsed;
  ((std::variant_alternative_t<kIndex, Op>::kName == text.name &&
    (parsed = fields_from<std::variant_alternative_t<kIndex, Op>>(text, kFields), true)) ||
   ...);
  if (!parsed || text.name == Update::kName || text.name == UpdatePrelude::kName) base::bad_input("there is no operator \"{}\"", text.name);
  return *parsed;
}

template <std::size_t... kIndex>
std::array<Definition, sizeof...(kIndex)> all_definitions(std::index_sequence<kIndex...>) {
  return {define(std::variant_alternative_t<kIndex, Op>{})...};
}

using EveryOp = std::make_index_sequence<std::variant_size_v<Op>>;

}  // namespace

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& attributes) { return std::decay_t<decltype(attributes)>::kName; }, op);
}

std::string to_string(const Op& op) {
  return std::visit(
      [](const auto& attributes) { return with_fields(printed_name_of(attributes), attributes, kFields, plain_of(attributes)); }, op);
}

Op parse_op(std::string_view text) { return parse_named(named_list(text), EveryOp{}); }

const Definition& definition_of(const Op& op) {
  static const auto definitions = all_definitions(EveryOp{});
  return definitions[op.index()];
}

std::vector<Alias> aliases_of(const Op& op) {
  const auto aliases = definition_of(op).aliases;
  return aliases == nullptr ? std::vector<Alias>{} : aliases(op);
}

std::optional<Inverse> inverse_of(const Op& op, std::size_t input, Types inputs) {
  const auto inverse = definition_of(op).inverse;
  return inverse == nullptr ? std::nullopt : inverse(op, input, inputs);
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

std::string_view name_of(Spread spread) {
  switch (spread) {
    case Spread::whole: return "whole";
    case Spread::split: return "split";
    case Spread::rows: return "rows";
    case Spread::partial: return "partial";
  }
  PLIMSOLL_CHECK(false, "a placement that has no name");
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
  return query.inputs[input].spread == Spread::split && query.inputs[input].dim == last_dim(query.types[input]);
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

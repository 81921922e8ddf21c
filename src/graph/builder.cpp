#include "graph/builder.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "graph/scalar_chains.h"
#include "ops/step_scalars.h"

namespace plimsoll::graph {

using base::DType;
using base::Shape;

Builder::Builder(const BuildOptions& options) : options_(options) {
  block("step", BlockKind::step);
  if (options_.purpose == Purpose::infer) return;
  graph_.scalars =
      graph_.add_value({.name = "scalars", .type = ops::step_scalars_type(), .role = Role::scalars, .block = block_, .init = zeros()});
  graph_.add_node(ops::BeginStep{}, {graph_.scalars}, block_, Phase::begin, "scalars.begun");
}

DType Builder::compute_dtype() const {
  switch (options_.precision) {
    case model::Precision::f32: return DType::f32;
    case model::Precision::fp16: return DType::f16;
    case model::Precision::bf16:
    case model::Precision::fp8: return DType::bf16;
  }
  return DType::f32;
}

void Builder::block(std::string name, BlockKind kind) { block_ = graph_.blocks.add({.name = std::move(name), .kind = kind}); }

ValueId Builder::input(const std::string& name, const TensorType& type) {
  for (std::uint32_t index = 0; index < graph_.values.size(); ++index) {
    const Value& value = graph_.values[ValueId{index}];
    if (value.role != Role::input || value.name != name) continue;
    PLIMSOLL_CHECK(value.type == type, "{} is read as {} and as {}", name, base::to_string(value.type), base::to_string(type));
    return ValueId{index};
  }
  const Shape& shape = type.shape;
  const bool has_rows = shape.rank() >= 2 && shape[0] == options_.micro_batch.samples && shape[1] == options_.micro_batch.sequence;
  return graph_.add_value({.name = name, .type = type, .role = Role::input, .block = block_, .live = has_rows ? live_ : Live{}});
}

ValueId Builder::ids(const std::string& name) {
  return input(name, {DType::i32, Shape{options_.micro_batch.samples, options_.micro_batch.sequence}});
}

ValueId Builder::numbers(const std::string& name, std::int64_t width) {
  const ValueId read = input(name, {DType::f32, Shape{options_.micro_batch.samples, options_.micro_batch.sequence, width}});
  return compute_dtype() == DType::f32 ? read : apply(ops::Cast{.dtype = compute_dtype()}, {read}, name + ".cast");
}

ValueId Builder::samples() { return input("samples", {DType::i32, Shape{options_.micro_batch.samples}}); }

void Builder::bound_rows(double expected) {
  for (const Value& value : graph_.values)
    PLIMSOLL_CHECK(value.role != Role::input, "{} was made before the rows were bounded", value.name);
  if (!(expected > 0.0 && expected <= 1.0))
    base::bad_input("found {} as the expected share of bounded rows, expected more than 0 and at most 1", expected);
  const ValueId count = graph_.add_value({.name = "rows", .type = {DType::i32, Shape{1}}, .role = Role::input, .block = block_});
  live_ = {.count = count, .bound = options_.micro_batch.samples * options_.micro_batch.sequence, .expected = expected};
  if (graph_.scalars.valid())
    apply(ops::CheckRows{.bound = live_.bound}, {ScalarChains(graph_).newest(graph_.scalars), count}, "scalars.rows");
}

ValueId Builder::parameter(const std::string& name, const Shape& shape, const Init& init, const ops::Placement& deal) {
  for (const Parameter& known : graph_.parameters) {
    PLIMSOLL_CHECK(known.name != name, "parameter {} is declared twice", name);
  }
  // Vectors (biases, norms) stay in f32: they cost nothing and lose the most by rounding.
  const DType dtype = shape.rank() >= 2 ? compute_dtype() : DType::f32;
  Parameter parameter{.name = name};
  parameter.weight =
      graph_.add_value({.name = name, .type = {dtype, shape}, .role = Role::parameter, .block = block_, .init = init, .deal = deal});
  parameter.master = parameter.weight;
  graph_.parameters.push_back(parameter);
  return parameter.weight;
}

void Builder::sum_over(std::vector<ops::Axis> axes, ops::State::Merge merge) {
  PLIMSOLL_CHECK(!graph_.parameters.empty(), "no parameter was declared whose gradient could be summed");
  Parameter& parameter = graph_.parameters.back();
  parameter.sums_over = std::move(axes);
  if (!parameter.shared()) graph_.values[parameter.weight].state.merge = merge;
}

ValueId Builder::constant(const std::string& name, const TensorType& type, const Init& init) {
  return graph_.add_value({.name = name, .type = type, .role = Role::constant, .block = block_, .init = init});
}

ValueId Builder::state(const std::string& name, const TensorType& type, const ops::State& state, const ops::Placement& deal) {
  return graph_.add_value({.name = name, .type = type, .role = Role::state, .block = block_, .deal = deal, .state = state});
}

ValueId Builder::apply(const ops::Op& op, std::vector<ValueId> inputs, std::string_view name) {
  return graph_.add_node(op, std::move(inputs), block_, Phase::forward, name)[0];
}

ValueId Builder::embed(const std::vector<std::pair<ValueId, ValueId>>& ids_and_tables, std::string_view name, std::int64_t padding) {
  std::vector<ValueId> inputs;
  for (const auto& [ids, table] : ids_and_tables) {
    inputs.push_back(ids);
    inputs.push_back(table);
  }
  return apply(ops::Embed{.tables = static_cast<std::int64_t>(ids_and_tables.size()), .padding = padding}, std::move(inputs), name);
}

ValueId Builder::linear(ValueId x, const std::string& name, std::int64_t width, const LinearOptions& options) {
  const std::int64_t inner = graph_.values[x].type.shape[-1];
  std::vector<ValueId> inputs{x, parameter(name + ".weight", Shape{width, inner}, normal(options.init_std), options.deal)};
  graph_.parameters.back().matrix = options.matrices;
  const bool by_rows = options.deal.spread == ops::Spread::split && options.deal.dim == 0;
  if (options.bias) inputs.push_back(parameter(name + ".bias", Shape{width}, zeros(), by_rows ? options.deal : ops::whole()));
  return apply(ops::Linear{.bias = options.bias}, std::move(inputs), name);
}

ValueId Builder::norm(ValueId x, const std::string& name, const NormOptions& options) {
  const std::int64_t width = graph_.values[x].type.shape[-1];
  std::vector<ValueId> inputs{x, parameter(name + ".weight", Shape{width}, ones())};
  if (options.bias) inputs.push_back(parameter(name + ".bias", Shape{width}, zeros()));
  return apply(ops::Norm{.kind = options.kind, .eps = options.eps, .bias = options.bias}, std::move(inputs), name);
}

ValueId Builder::activation(ValueId x, ops::ActivationKind kind, std::string_view name) {
  return apply(ops::Activation{.kind = kind}, {x}, name);
}

ValueId Builder::gate(ValueId x, ops::ActivationKind kind, std::string_view name) { return apply(ops::Gate{.kind = kind}, {x}, name); }

ValueId Builder::qk_norm(ValueId packed, const std::string& name, const ops::Heads& heads, double eps) {
  const ValueId query = parameter(name + ".query_norm.weight", Shape{heads.dim}, ones());
  const ValueId key = parameter(name + ".key_norm.weight", Shape{heads.dim}, ones());
  return apply(ops::QkNorm{.heads = heads, .eps = eps}, {packed, query, key}, name + ".qk_norm");
}

ValueId Builder::rope(ValueId packed, ValueId table, const ops::Heads& heads, std::string_view name) {
  return apply(ops::Rope{.heads = heads}, {packed, positions(), table}, name);
}

ValueId Builder::attention(ValueId packed, ops::Attention attention, double dropout, const std::string& name) {
  if (options_.cache_slots > 0) return cached_attention(packed, attention, name);
  std::vector<ValueId> inputs{packed};
  attention.segmented = options_.segmented;
  if (attention.segmented) inputs.push_back(segments());
  drop(attention, dropout, name, inputs);
  return apply(attention, std::move(inputs), name);
}

void Builder::drop(ops::Attention& attention, double rate, const std::string& name, std::vector<ValueId>& inputs) {
  if (!training() || rate == 0.0) return;
  attention.rate = rate;
  attention.site = base::hash_name(name);
  if (attention.separate && attention.length == 0) attention.length = options_.micro_batch.sequence;
  inputs.push_back(samples());
  inputs.push_back(graph_.scalars);
}

Builder::Attended Builder::attend(const std::array<ValueId, 3>& tensors, ops::Attention attention, double dropout,
                                  const std::string& name) {
  if (options_.cache_slots > 0)
    base::not_legal("{}: text is generated with a cache by attention over packed heads; queries, keys and values of their own have none",
                    name);
  std::vector<ValueId> inputs(tensors.begin(), tensors.end());
  attention.separate = true;
  attention.segmented = options_.segmented;
  if (attention.segmented) inputs.insert(inputs.end(), 2, segments());
  drop(attention, dropout, name, inputs);
  const std::vector<ValueId> results = graph_.add_node(attention, std::move(inputs), block_, Phase::forward, name);
  return {results[0], results[1]};
}

Builder::Attended Builder::merge_attention(const Attended& a, const Attended& b, const std::string& name) {
  const std::vector<ValueId> results = graph_.add_node(ops::MergeAttention{}, {a.out, a.lse, b.out, b.lse}, block_, Phase::forward, name);
  return {results[0], results[1]};
}

// What is generated is one document, so segments do not matter.
ValueId Builder::cached_attention(ValueId packed, const ops::Attention& attention, const std::string& name) {
  PLIMSOLL_CHECK(options_.purpose == Purpose::infer && attention.causal, "{} cannot go through a cache", name);
  const TensorType& type = graph_.values[packed].type;
  const ops::Heads& heads = attention.heads;
  const ops::Placement by_heads{.spread = ops::Spread::split, .dim = 1, .units = heads.kv, .own = heads.per_group(), .shared = 2};
  const ValueId cache = graph_.add_value({.name = name + ".cache",
                                          .type = {type.dtype, {type.shape[0], 2 * heads.kv, options_.cache_slots, heads.dim}},
                                          .role = Role::state,
                                          .block = block_,
                                          .init = zeros(),
                                          .deal = by_heads});
  return apply(ops::CachedAttention{.heads = heads, .window = attention.window, .pattern = attention.pattern}, {packed, positions(), cache},
               name);
}

ValueId Builder::all_to_all(ValueId x, const ops::Axis& axis, std::int64_t members, std::string_view name) {
  if (members == 1) return x;
  return apply(ops::Collective{.kind = ops::CollectiveKind::all_to_all, .axis = axis, .members = members}, {x}, name);
}

void Builder::running_mean(ValueId x, const std::string& name, double momentum, const ops::Placement& deal) {
  if (!training()) return;
  const ops::State kept{.cut = ops::State::Cut::own, .merge = ops::State::Merge::mean, .written = ops::State::Written::forward};
  const ValueId mean = state(name, {DType::f32, Shape{graph_.values[x].type.shape[-1]}}, kept, deal);
  apply(ops::RunningMean{.momentum = momentum}, {x, mean}, name + ".new");
}

ValueId Builder::round_with_error(ValueId x, const std::string& name, DType dtype) {
  if (!training()) return x;
  const TensorType type = graph_.values[x].type;
  const ops::State kept{.cut = ops::State::Cut::own, .merge = ops::State::Merge::sum, .written = ops::State::Written::forward};
  const ValueId rounded = apply(ops::RoundWithError{.dtype = dtype}, {x, state(name, {DType::f32, type.shape}, kept)}, name + ".rounded");
  return type.dtype == dtype ? rounded : apply(ops::Cast{.dtype = type.dtype}, {rounded}, name + ".cast");
}

ValueId Builder::dropout(ValueId x, double rate, const std::string& name) {
  if (!training() || rate == 0.0) return x;
  return apply(ops::Dropout{.rate = rate, .site = base::hash_name(name)}, {x, samples(), graph_.scalars}, name);
}

ValueId Builder::residual(ValueId x, ValueId branch, double rate, const std::string& name) {
  if (!training() || rate == 0.0) return apply(ops::Residual{}, {x, branch}, name);
  return apply(ops::Residual{.rate = rate, .site = base::hash_name(name)}, {x, branch, samples(), graph_.scalars}, name);
}

void Builder::head(ValueId x, ValueId weight, ValueId bias) {
  if (!options_.logits) return;
  std::vector<ValueId> inputs{x, weight};
  if (bias.valid()) inputs.push_back(bias);
  const ValueId logits = apply(ops::Linear{.bias = bias.valid()}, std::move(inputs), "logits");
  if (options_.purpose == Purpose::infer) {
    graph_.results.push_back(logits);
    return;
  }
  const ValueId losses = apply(ops::CrossEntropy{}, {logits, targets()}, "losses");
  graph_.results.push_back(losses);
}

// A product with minus one makes the difference, and a product of the differences with themselves sums their squares.
void Builder::squared_error(ValueId prediction) {
  if (!options_.logits) return;
  const TensorType type = graph_.values[prediction].type;
  if (options_.purpose == Purpose::infer) {
    graph_.results.push_back(prediction);
    return;
  }
  const std::int64_t width = type.shape[-1];
  const ValueId targets = input("targets", {DType::f32, type.shape});
  const ValueId minus = constant("minus", {DType::f32, Shape{width, width}}, {.kind = Init::Kind::minus_identity});
  const ValueId f32 = type.dtype == DType::f32 ? prediction : apply(ops::Cast{.dtype = DType::f32}, {prediction}, "prediction.f32");
  const ValueId apart = apply(ops::Residual{}, {f32, apply(ops::Linear{}, {targets, minus}, "targets.minus")}, "apart");
  const ValueId flat = apply(ops::View{.shape = Shape{1, type.shape.elements()}}, {apart}, "apart.flat");
  const ValueId squares = apply(ops::Linear{}, {flat, flat}, "squares");
  graph_.results.push_back(apply(ops::View{.shape = Shape{1}}, {squares}, "losses"));
}

Graph Builder::finish() && {
  // A tied head is declared in an early block; what a graph owns is otherwise in order of use.
  return std::move(graph_);
}

}  // namespace plimsoll::graph

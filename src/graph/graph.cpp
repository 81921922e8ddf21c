#include "graph/graph.h"

#include <fmt/format.h>

#include "graph/scalar_chains.h"

namespace plimsoll::graph {

NodeId Graph::append(const Node& node) {
  const NodeId id = nodes.add(node);
  for (ValueId output : node.outputs) values[output].producer = id;
  return id;
}

std::vector<TensorType> Graph::types(std::span<const ValueId> ids) const {
  std::vector<TensorType> found;
  found.reserve(ids.size());
  for (ValueId id : ids) found.push_back(values[id].type);
  return found;
}

std::vector<ValueId> Graph::add_node(const ops::Op& op, std::vector<ValueId> inputs, BlockId block, Phase phase, std::string_view name) {
  const ops::Definition& definition = ops::definition_of(op);
  const std::vector<TensorType> results_types = definition.infer(op, types(inputs));
  const ops::Tier tier = definition.tier_of_results != nullptr ? definition.tier_of_results(op) : ops::Tier::device;
  const NodeId id = nodes.next_id();
  std::vector<ValueId> outputs;
  for (std::size_t index = 0; index < results_types.size(); ++index) {
    const std::string result_name = results_types.size() == 1 ? std::string(name) : fmt::format("{}.{}", name, index);
    outputs.push_back(add_value({.name = result_name, .type = results_types[index], .block = block, .producer = id, .tier = tier}));
  }
  nodes.add({.op = op, .inputs = std::move(inputs), .outputs = outputs, .block = block, .phase = phase});
  return outputs;
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::begin: return "begin";
    case Phase::forward: return "forward";
    case Phase::recompute: return "recompute";
    case Phase::backward: return "backward";
    case Phase::backward_weight: return "backward-weight";
    case Phase::join: return "join";
    case Phase::norm: return "norm";
    case Phase::verdict: return "verdict";
    case Phase::update: return "update";
    case Phase::finish: return "finish";
  }
  return "?";
}

std::optional<LowHalves> low_halves(const Graph& graph, const Parameter& parameter) {
  for (std::size_t state = ops::kSignState + 1; state < parameter.states.size(); ++state) {
    const ValueId id = parameter.states[state];
    if (graph.values[id].type.dtype == base::DType::u16) return LowHalves{.low = id, .v = parameter.states[ops::kSignState]};
  }
  return std::nullopt;
}

std::string_view name_of(BlockKind kind) {
  switch (kind) {
    case BlockKind::layer: return "layer";
    case BlockKind::step: return "step";
    case BlockKind::opening: return "opening";
    case BlockKind::closing: return "closing";
  }
  return "?";
}

std::string_view name_of(Role role) {
  switch (role) {
    case Role::input: return "input";
    case Role::constant: return "constant";
    case Role::parameter: return "parameter";
    case Role::master: return "master";
    case Role::state: return "state";
    case Role::scalars: return "scalars";
    case Role::gradient: return "gradient";
    case Role::computed: return "computed";
  }
  return "?";
}

std::string_view name_of(Turn turn) {
  switch (turn) {
    case Turn::each: return "each";
    case Turn::first: return "first";
    case Turn::last: return "last";
    case Turn::later: return "later";
  }
  return "?";
}

std::string_view name_of(Init::Kind kind) {
  switch (kind) {
    case Init::Kind::none: return "none";
    case Init::Kind::zeros: return "zeros";
    case Init::Kind::ones: return "ones";
    case Init::Kind::normal: return "normal";
    case Init::Kind::rope: return "rope";
    case Init::Kind::minus_identity: return "minus_identity";
  }
  return "?";
}

std::vector<ValueId> states_of_values(const Graph& graph) {
  std::vector<ValueId> states(graph.values.size());
  for (std::uint32_t index = 0; index < graph.values.size(); ++index) {
    if (graph.values[ValueId{index}].role == Role::state) states[index] = ValueId{index};
  }
  for (const Node& node : graph.nodes) {
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      const ValueId input = node.inputs[static_cast<std::size_t>(alias.input)];
      const ValueId output = node.outputs[static_cast<std::size_t>(alias.output)];
      if (alias.required && input.valid() && output.valid()) states[output.index] = states[input.index];
    }
  }
  return states;
}

std::vector<bool> nodes_that_run_once(const Graph& graph) {
  const std::vector<ValueId> states = states_of_values(graph);
  const ScalarChains chains(graph);
  std::vector<bool> written(graph.values.size(), false);
  const auto for_each_of_forward = [&](auto&& visit) {
    for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
      if (graph.nodes[NodeId{index}].phase == Phase::forward) visit(graph.nodes[NodeId{index}], index);
    }
  };
  for_each_of_forward([&](const Node& node, std::uint32_t) {
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      const ValueId state = states[node.inputs[static_cast<std::size_t>(alias.input)].index];
      if (alias.required && !alias.view && state.valid()) written[state.index] = true;
    }
  });
  std::vector<bool> once(graph.nodes.size(), false);
  for_each_of_forward([&](const Node& node, std::uint32_t index) {
    const bool adds_to_scalars =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return id.valid() && chains.has(id); });
    once[index] = adds_to_scalars || std::any_of(node.inputs.begin(), node.inputs.end(),
                                                 [&](ValueId id) { return states[id.index].valid() && written[states[id.index].index]; });
  });
  return once;
}

void remove_unused(Graph& graph) {
  std::vector<bool> read(graph.values.size(), false);
  for (ValueId id : graph.results) read[id.index] = true;
  for (const Parameter& parameter : graph.parameters) {
    if (parameter.gradient.valid()) read[parameter.gradient.index] = true;
  }
  const auto overwrites_root = [&](const Node& node) {
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      if (alias.required && graph.values[node.inputs[static_cast<std::size_t>(alias.input)]].role != Role::computed) return true;
    }
    return false;
  };
  // In-place chains (scalars, states) start at a root: every link of one is kept through the link after it.
  std::vector<bool> in_place(graph.values.size(), false);
  std::vector<bool> keep(graph.nodes.size(), false);
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[NodeId{index}];
    bool chained = overwrites_root(node) || node.outputs.empty();  // a message is read elsewhere
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      chained = chained || (alias.required && in_place[node.inputs[static_cast<std::size_t>(alias.input)].index]);
    }
    // Other ranks wait in a collective for those that have no use for its result; what runs again does so alike on all of them.
    keep[index] = chained || (ops::is_collective(node.op) && node.phase != Phase::recompute);
    if (!chained) continue;
    for (ValueId id : node.outputs) in_place[id.index] = true;
  }
  for (std::uint32_t index = static_cast<std::uint32_t>(graph.nodes.size()); index-- > 0;) {
    const Node& node = graph.nodes[NodeId{index}];
    for (ValueId id : node.outputs) keep[index] = keep[index] || read[id.index];
    if (!keep[index]) continue;
    for (ValueId id : node.inputs) read[id.index] = true;
    for (ValueId id : node.outputs) read[id.index] = true;
  }

  base::IdVector<ValueId, Value> values;
  std::vector<ValueId> moved(graph.values.size());
  for (std::uint32_t index = 0; index < graph.values.size(); ++index) {
    const Value& value = graph.values[ValueId{index}];
    if (value.role == Role::computed && !(read[index] && keep[value.producer.index])) continue;
    if (value.role == Role::input && !read[index]) continue;
    moved[index] = values.add(value);
  }
  base::IdVector<NodeId, Node> nodes;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    if (!keep[index]) continue;
    Node node = graph.nodes[NodeId{index}];
    for (ValueId& id : node.inputs) id = moved[id.index];
    const NodeId id = nodes.next_id();
    for (ValueId& output : node.outputs) {
      output = moved[output.index];
      values[output].producer = id;
    }
    nodes.add(std::move(node));
  }
  for (Value& value : values) {
    if (value.live.count.valid()) value.live.count = moved[value.live.count.index];
  }
  graph.values = std::move(values);
  graph.nodes = std::move(nodes);
  for (ValueId& id : graph.results) id = moved[id.index];
  if (graph.scalars.valid()) graph.scalars = moved[graph.scalars.index];
  if (graph.pending.valid()) graph.pending = moved[graph.pending.index];
  for (Parameter& parameter : graph.parameters) {
    parameter.weight = moved[parameter.weight.index];
    parameter.master = moved[parameter.master.index];
    for (ValueId& id : parameter.states) id = moved[id.index];
    if (parameter.gradient.valid()) parameter.gradient = moved[parameter.gradient.index];
  }
}

}  // namespace plimsoll::graph

#include "graph/rewrite.h"

#include <utility>

namespace plimsoll::graph {

void renew_producers(Graph& graph) {
  for (Value& value : graph.values) value.producer = {};
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    for (const ValueId output : graph.nodes[NodeId{index}].outputs) graph.values[output].producer = NodeId{index};
  }
}

Rewrite::Rewrite(const Graph& from, Values values) : from_(from), values_(values), now_(from.values.size()) {
  if (values == Values::fresh) {
    to_.blocks = from.blocks;
    to_.parameters = from.parameters;
    return;
  }
  to_ = from;
  to_.nodes = {};
  for (std::uint32_t index = 0; index < now_.size(); ++index) now_[index] = ValueId{index};
}

ValueId Rewrite::declare(ValueId old, Value value) {
  value.live.count = now(value.live.count);  // counts are declared before what they count
  return now_[old.index] = to_.add_value(std::move(value));
}

NodeId Rewrite::keep(Node node) {
  std::vector<ValueId> inputs = node.inputs;
  for (ValueId& input : inputs) input = now(input);
  return keep(std::move(node), std::move(inputs));
}

NodeId Rewrite::keep(Node node, std::vector<ValueId> inputs) {
  node.inputs = std::move(inputs);
  if (values_ == Values::fresh) {
    const std::vector<TensorType> types = ops::definition_of(node.op).infer(node.op, to_.types(node.inputs));
    for (std::size_t index = 0; index < node.outputs.size(); ++index) {
      Value value = from_.values[node.outputs[index]];
      value.type = types[index];
      node.outputs[index] = now_[node.outputs[index].index] = to_.add_value(std::move(value));
    }
  }
  return to_.append(node);
}

std::vector<ValueId> Rewrite::make(const ops::Op& op, std::vector<ValueId> inputs, const Site& site, std::string_view name) {
  std::vector<ValueId> made = to_.add_node(op, std::move(inputs), site.block, site.phase, name);
  newest().turn = site.turn;
  return made;
}

Graph Rewrite::take() {
  if (values_ == Values::kept) {
    renew_producers(to_);
    return std::move(to_);
  }
  for (Parameter& parameter : to_.parameters) {
    parameter.weight = now(parameter.weight);
    parameter.master = now(parameter.master);
    for (ValueId& state : parameter.states) state = now(state);
    parameter.gradient = now(parameter.gradient);
  }
  to_.scalars = now(from_.scalars);
  to_.pending = now(from_.pending);
  for (const ValueId id : from_.results) {
    if (now(id).valid()) to_.results.push_back(now(id));
  }
  return std::move(to_);
}

}  // namespace plimsoll::graph

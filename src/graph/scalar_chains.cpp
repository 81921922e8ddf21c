#include "graph/scalar_chains.h"

namespace plimsoll::graph {

ScalarChains::ScalarChains(const Graph& graph) : first_(graph.values.size()), newest_(graph.values.size()) {
  const auto begin = [&](ValueId id) { first_[id.index] = newest_[id.index] = id; };
  if (graph.scalars.valid()) begin(graph.scalars);
  for (const Node& node : graph.nodes) {
    if (ops::definition_of(node.op).begins_scalars) begin(node.outputs[0]);
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      const ValueId first = first_[node.inputs[static_cast<std::size_t>(alias.input)].index];
      if (!alias.required || !first.valid()) continue;
      const ValueId made = node.outputs[static_cast<std::size_t>(alias.output)];
      first_[made.index] = first;
      newest_[first.index] = made;
    }
  }
}

}  // namespace plimsoll::graph

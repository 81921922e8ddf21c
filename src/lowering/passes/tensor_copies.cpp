#include "lowering/passes/tensor_copies.h"

#include <algorithm>

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::Role;
using graph::ValueId;

// What every tensor rank has the same of behind a collective among them.
bool makes_same(const ops::Collective& collective) {
  return collective.axis == ops::Axis::tensor && collective.first == 0 &&
         (collective.kind == ops::CollectiveKind::all_reduce || collective.kind == ops::CollectiveKind::all_gather);
}

}  // namespace

std::vector<bool> same_on_tensor_ranks(const Graph& graph) {
  std::vector<bool> same(graph.values.size(), false);
  for (std::uint32_t index = 0; index < graph.values.size(); ++index) {
    const graph::Value& value = graph.values[ValueId{index}];
    same[index] = value.role != Role::computed && value.part.dim < 0;
  }
  for (const Node& node : graph.nodes) {
    const bool meets = ops::is_collective(node.op) && ops::is_of(std::get<ops::Collective>(node.op).axis, ops::Axis::tensor);
    const bool made_same = meets ? makes_same(std::get<ops::Collective>(node.op))
                                 : !ops::definition_of(node.op).differs_by_rank &&
                                       std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return same[id.index]; });
    for (ValueId id : node.outputs) same[id.index] = made_same;
  }
  return same;
}

}  // namespace plimsoll::lowering

#include "lowering/passes/weight_stretches.h"

#include <algorithm>

namespace plimsoll::lowering {

namespace {

// A block's backward pass right behind its recompute has the weights that were gathered for that.
WeightStretch stretch_at(std::uint32_t index, const graph::Node& node, const std::vector<WeightStretch>& before) {
  const bool follows = node.phase == graph::Phase::backward && !before.empty() && before.back().block == node.block &&
                       before.back().phase == graph::Phase::recompute;
  return {.begin = index, .end = index, .block = node.block, .phase = node.phase, .gathers = before.size() - (follows ? 1 : 0)};
}

}  // namespace

std::vector<WeightStretch> weight_stretches(const graph::Graph& graph,
                                            const std::function<std::optional<std::size_t>(graph::ValueId)>& in_shards) {
  std::vector<WeightStretch> stretches;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const graph::Node& node = graph.nodes[graph::NodeId{index}];
    if (stretches.empty() || stretches.back().block != node.block || stretches.back().phase != node.phase)
      stretches.push_back(stretch_at(index, node, stretches));
    stretches.back().end = index + 1;
    if (!graph::runs_per_micro_batch(node.phase)) continue;
    std::vector<std::size_t>& needs = stretches[stretches.back().gathers].needs;
    for (const graph::ValueId id : node.inputs) {
      const std::optional<std::size_t> parameter = in_shards(id);
      if (parameter && std::find(needs.begin(), needs.end(), *parameter) == needs.end()) needs.push_back(*parameter);
    }
  }
  return stretches;
}

}  // namespace plimsoll::lowering

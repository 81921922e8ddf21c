// A graph as runs of nodes of one block and phase: what passes that fetch ahead of use count in.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace plimsoll::lowering {

struct Stretch {
  std::uint32_t begin = 0;  // nodes
  std::uint32_t end = 0;
  graph::BlockId block;
  graph::Phase phase = graph::Phase::forward;
};

inline std::vector<Stretch> stretches_of(const graph::Graph& graph) {
  std::vector<Stretch> stretches;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const graph::Node& node = graph.nodes[graph::NodeId{index}];
    if (stretches.empty() || stretches.back().block != node.block || stretches.back().phase != node.phase)
      stretches.push_back({.begin = index, .end = index, .block = node.block, .phase = node.phase});
    stretches.back().end = index + 1;
  }
  return stretches;
}

// Whether `after` is issued in a row with `before`: in a pipeline only what one stage does in one phase is.
inline bool in_a_row(const graph::Graph& graph, const Stretch& before, const Stretch& after, bool pipeline) {
  if (!graph::runs_per_micro_batch(after.phase)) return false;
  return !pipeline || (graph.blocks[before.block].stage == graph.blocks[after.block].stage && before.phase == after.phase);
}

}  // namespace plimsoll::lowering

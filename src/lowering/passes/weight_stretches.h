// A graph in stretches of nodes of one block and phase, with the weights in shards that must be gathered for each.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace plimsoll::lowering {

struct WeightStretch {
  std::uint32_t begin = 0;  // of nodes
  std::uint32_t end = 0;
  graph::BlockId block;
  graph::Phase phase = graph::Phase::forward;
  std::vector<std::size_t> needs{};  // parameters that must be gathered for it
  std::size_t gathers = 0;           // the stretch for which its weights are gathered: itself, or the recompute right before it
};

// `in_shards`: which parameter a value is the weight of, where that must be gathered.
std::vector<WeightStretch> weight_stretches(const graph::Graph& graph,
                                            const std::function<std::optional<std::size_t>(graph::ValueId)>& in_shards);

}  // namespace plimsoll::lowering

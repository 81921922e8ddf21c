// State is dealt out tensor by tensor in the order of the forward pass: what stays on the device first, then the host's memory, then the
// disk. The first blocks' gradients come last and their weights are wanted first, so it is these that nobody should wait for.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// What a value is a view of.
graph::ValueId root_of(const graph::Graph& graph, graph::ValueId id);

// By parameter: where its master and states live.
std::vector<ops::Tier> optimizer_tiers(const graph::Graph& graph, const strategy::TierShare& share);

}  // namespace plimsoll::lowering

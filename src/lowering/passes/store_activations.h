// Activations in slower tiers: what a block's forward pass makes for the backward pass goes to the host's memory or to disk behind it,
// in the order it is made, and comes back ahead of the pass that reads it. What would be wanted again before it could have gone and
// come stays.
//
// Tensor ranks can do the same with each other (ZeRO-R): of what all of them make, such as the inputs of blocks, each keeps a part, and the
// parts are gathered for the pass that reads them.
#pragma once

#include <optional>
#include <set>

#include "graph/graph.h"

namespace plimsoll::lowering {

struct StoreOptions {
  ops::Tier tier = ops::Tier::host;
  std::int64_t prefetch = 2;                            // in stretches of one block and phase, for each hop
  bool stages = false;                                  // only what one stage does in one phase runs in a row
  double share = 1.0;                                   // of the bytes, those made first
  std::optional<std::set<graph::BlockId>> blocks = {};  // instead of a share: whose forward pass makes what leaves
  std::optional<ops::Seat> among = {};                  // instead of to a slower tier: on the tensor axis, of which each rank keeps a part
};

// Comes after recompute and the splits over ranks. Graphs without a backward pass stay as they are.
graph::Graph store_activations(const graph::Graph& graph, const StoreOptions& options);

}  // namespace plimsoll::lowering

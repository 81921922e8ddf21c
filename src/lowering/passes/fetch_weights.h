// Weights in slower tiers (ZeRO-Infinity): they live in the host's memory or on disk, and each block's come to the device for its
// forward pass and again for its backward pass, some blocks ahead, and are gone when the block is done. What comes from disk comes
// in two hops, the first another so many blocks ahead. Where data ranks share weights out, a rank fetches its own shard, and the
// shards are gathered on the devices.
#pragma once

#include "graph/graph.h"

namespace plimsoll::lowering {

struct FetchOptions {
  ops::Tier tier = ops::Tier::host;
  std::int64_t prefetch = 2;  // in stretches of one block and phase, for each hop
  bool stages = false;        // only what one stage does in one phase runs in a row
};

// Of graphs with or without a backward pass. Comes after ranks have shared out the weights, and before the update is moved.
graph::Graph fetch_weights(const graph::Graph& graph, const FetchOptions& options);

}  // namespace plimsoll::lowering

// Gradients in slower tiers: what a block's backward pass makes of them goes to the host's memory or to disk behind it, so that the
// device never holds those of all blocks. Where a step has several micro-batches, what is there comes back before the block's next
// backward pass adds to it, and where two blocks add to one gradient (a table that embedding and head share), before the second does: the
// sums are made by the same kernels in the same order as on the device.
#pragma once

#include "graph/graph.h"

namespace plimsoll::lowering {

struct StoreGradients {
  ops::Tier tier = ops::Tier::host;
  std::int32_t micro_batches = 1;
  bool stages = false;  // pipeline stages run in between
};

// Comes after ranks have shared out the gradients and square_early, and before the update is moved: what is squared in the backward pass
// leaves. What data ranks hold whole, and reduce only in a step's last micro-batch, cannot leave before: not_legal.
graph::Graph store_gradients(const graph::Graph& graph, const StoreGradients& options);

}  // namespace plimsoll::lowering

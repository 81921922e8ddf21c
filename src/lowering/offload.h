// Optimizer state in slower tiers: masters and moments live in the host's memory (ZeRO-Offload) or on disk, and the update is made
// by the host. Group by group, gradients go out and state comes in, the update runs, weights go back in the type the model computes
// with and state goes back to the disk; while one group is updated, the next one's operands are on their way in and the last one's
// results on their way out. A group is some parameters of a block, or a part of a large one, so what is under way at once is bounded
// by the bucket, whatever the size of the model and of its largest tensor.
//
// It is the last pass over the graph: whatever ranks share out, a rank moves what it updates.
#pragma once

#include "base/bytes.h"
#include "graph/graph.h"

namespace plimsoll::lowering {

// Graphs without an update stay as they are. A trained parameter whose weight is in another tier than its optimizer state must have a
// master of its own (model::Training::masters).
graph::Graph offload_optimizer(const graph::Graph& graph, ops::Tier tier, base::Bytes bucket);

}  // namespace plimsoll::lowering

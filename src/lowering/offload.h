// Optimizer state in the host's memory (ZeRO-Offload): masters and moments live there and the update is made there. Of each block,
// gradients go out, the update runs, weights come back in the type the model computes with; while one block is updated, the next
// one's gradients are on their way.
//
// It is the last pass over the graph: whatever ranks share out, a rank moves what it updates.
#pragma once

#include "graph/graph.h"

namespace plimsoll::lowering {

// Graphs without an update stay as they are. Every trained parameter must have a master of its own (model::Training::masters).
graph::Graph offload_optimizer(const graph::Graph& graph);

}  // namespace plimsoll::lowering

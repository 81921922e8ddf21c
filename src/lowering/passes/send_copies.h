// What the host makes for the device in its updates, in one pass over its memory.
//
// Where the host is another processor than the device, it updates a weight's master and casts it to the type that the device computes with.
// Nobody on the host reads that again. So an update with a cast of its weight behind it becomes one operator that sends the cast weight,
// and one that writes a copy beside the master lets the copy leave: both go around the host's caches (ops/update.h).
#pragma once

#include "graph/graph.h"

namespace plimsoll::lowering {

// Whether the host makes an update.
bool updates_on_host(const graph::Graph& graph);

// Comes after updates have been moved to the host. Numbers stay as they are.
graph::Graph send_copies(const graph::Graph& graph);

}  // namespace plimsoll::lowering

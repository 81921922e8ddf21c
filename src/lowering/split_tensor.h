// The tensor axis: every rank of it has the same samples and some of the units of the large weights. From the graph of one
// rank alone to that of the rank at one place, with a collective wherever what an operator needs and what there is differ.
//
// Which parts an operator can work on is its own to say (ops/placement.h); which weights are dealt out, and in which units, is
// the model's (graph::Value::deal). Everything else follows.
#pragma once

#include "graph/graph.h"
#include "ops/placement.h"

namespace plimsoll::lowering {

// not_legal, naming operator or parameter and the numbers, when the graph cannot be shared out so.
graph::Graph split_over_tensor(const graph::Graph& graph, const ops::Seat& seat);

}  // namespace plimsoll::lowering

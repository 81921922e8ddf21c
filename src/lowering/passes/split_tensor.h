// The tensor axis: every rank of it has the same samples and some of the units of the large weights. From the graph of one
// rank alone to that of the rank at one place, with a collective wherever what an operator needs and what there is differ.
//
// Which parts an operator can work on is its own to say (ops/placement.h); which weights are dealt out, and in which units, is
// the model's (graph::Value::deal). Everything else follows.
//
// With sequence parallelism sums of parts are put together by rows: a reduce-scatter where all would be reduced, and
// what comes between two pairs of weights (residuals, norms, dropout) works on the rows of its rank. What a weight takes whole is
// gathered before it, once for the forward and once for the backward pass, so that only rows are kept between the two.
//
// Between the stages of a pipeline every rank sends its rows alone; without sequence parallelism the receivers gather them at once.
#pragma once

#include "graph/graph.h"
#include "ops/placement.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// not_legal, naming operator or parameter and the numbers, when the graph cannot be shared out so.
graph::Graph split_over_tensor(const graph::Graph& graph, const ops::Seat& seat, const strategy::Strategy& strategy);

// How many ranks hold the same key-value head when the graph is dealt out to `members`.
std::int64_t head_sharers(const graph::Graph& graph, std::int64_t members);

}  // namespace plimsoll::lowering

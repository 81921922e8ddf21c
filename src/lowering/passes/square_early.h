// Squares of gradients for the global norm, summed as soon as the gradients are complete instead of behind the whole backward pass: then
// nobody keeps a gradient for its norm alone, and it can leave or be used up. Sums of squares are exact (base/exact_sum.h), so that their
// order does not change a bit.
#pragma once

#include "graph/graph.h"

namespace plimsoll::lowering {

// Squares of gradients that are complete only behind the backward pass stay where they are.
graph::Graph square_early(const graph::Graph& graph);

}  // namespace plimsoll::lowering

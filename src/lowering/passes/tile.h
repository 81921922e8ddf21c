// Tiling: a weight matrix larger than the device should hold at once is computed with in tiles, each some of its rows. A tile is a
// parameter of its own, with a gradient, a master and states of its own and a part that says which elements of the whole tensor it is:
// whatever comes after (shards of data ranks, fetching, leaving gradients, updates in slower tiers) treats it as any other weight, and
// checkpoints know only the whole tensor.
//
// Every tile's work is a block of its own, so that it is fetched ahead of use and gone behind it. Outputs of a linear layer are put
// together column by column; gradients of its input are sums over the tiles, in their order. A table's tiles each look up the ids they
// have. The head goes over its tiles twice: once for every row's log-sum-exp, once for the gradients, so that logits exist one tile at a
// time.
//
// Where rows are enough, tiles are multiples of ops::kSumBlock elements: norms are then those of the whole tensor, to the bit.
#pragma once

#include "base/bytes.h"
#include "graph/graph.h"

namespace plimsoll::lowering {

// Cuts every weight matrix of more than `most` bytes, of graphs with or without a backward pass; zero: none. Comes after tensor ranks have
// their slices and what is made again has its place, and before data ranks share anything out. not_legal where an operator needs such a
// weight whole (8-bit products), or a row alone is larger.
graph::Graph tile_weights(const graph::Graph& graph, base::Bytes most);

}  // namespace plimsoll::lowering

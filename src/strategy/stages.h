// The model's blocks dealt out to the stages of a pipeline: each to exactly one, in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "strategy/strategy.h"

namespace plimsoll::strategy {

// How a graph's blocks follow each other: those before the layers, the layers, and those after them.
struct BlockChain {
  std::int64_t before = 0;  // the step's own and the opening ones
  std::int64_t layers = 0;
  std::int64_t after = 0;
  bool opens = false;  // there are opening blocks

  bool closes() const { return after > 0; }
  // Stages that have a block of the model each: a layer, or, the first and the last, the opening and the closing blocks alone.
  std::int64_t most_stages() const { return layers + (opens ? 1 : 0) + (closes() ? 1 : 0); }
};
BlockChain chain_of(const graph::Graph& graph);

// The stage of each block. The first stage begins with the opening blocks, the last ends with the closing ones; how the layers between them
// are dealt out is the strategy's `partition`. not_legal with the numbers where that is impossible.
std::vector<std::int32_t> stages_of(const graph::Graph& graph, const Strategy& strategy);

// Of a model with an opening and a closing block.
constexpr std::int64_t most_stages(std::int64_t layers) { return layers + 2; }

// Layers of each stage where they are dealt out evenly; there are at most most_stages(layers). The last stage has the head beside its
// layers and the first the embedding: what does not divide goes to those between them, then to the first. Where there are more stages
// than layers, the head is a stage alone, then the embedding too; of a model that has no head, the embedding at once.
std::vector<std::int64_t> equal_layers(std::int64_t layers, std::int64_t stages, bool closes = true);

// Layers of each stage such that the costliest stage is cheapest. `costs` are those of the embedding, the layers and the head.
std::vector<std::int64_t> balanced_layers(const std::vector<double>& costs, std::int64_t stages);

// What a block costs beside others: the work of its forward and backward nodes on a machine that does ten operations in the time it
// moves a byte.
std::vector<double> block_costs(const graph::Graph& graph);

// The contiguous parts of a chain whose costliest is cheapest: the part of each link. There are at least as many links as parts.
std::vector<std::int32_t> balanced_parts(const std::vector<double>& costs, std::int32_t parts);

}  // namespace plimsoll::strategy

// The forward and backward pass of a graph's step, block by block: what each block keeps for its backward pass, what of that is
// cheap to make again, and the whole as a chain of sizes and prices for strategy/rotor.
#pragma once

#include <set>
#include <vector>

#include "graph/graph.h"
#include "solvers/chain.h"

namespace plimsoll::lowering {

// A node that makes values of the forward pass again from others that are kept.
struct Rebuilt {
  ops::Op op;
  std::vector<graph::ValueId> inputs;
  std::vector<graph::ValueId> makes;  // values of the forward pass, one per result
};

struct BlockPasses {
  graph::BlockId block;
  std::vector<graph::NodeId> forward;
  std::vector<graph::NodeId> backward;
  std::vector<graph::ValueId> saved;      // made by the forward pass, read by a backward pass; weight gradients aside
  std::vector<graph::ValueId> handed_on;  // made by the forward pass, read by other blocks' forward passes
  std::vector<Rebuilt> rebuilds;          // what is cheap to make again, in an order that works
};

bool has_backward_pass(const graph::Graph& graph);
bool has_update(const graph::Graph& graph);

// In the order of the forward pass. Empty for graphs without a backward pass.
std::vector<BlockPasses> passes_of(const graph::Graph& graph);

// The last stage holds the loss and never runs twice. Form 0 of a stage keeps all its backward pass reads, form 1 (where anything
// is cheap) does without what can be rebuilt.
solvers::Chain chain_of(const graph::Graph& graph, const std::vector<BlockPasses>& passes, bool accumulates);

// Gradients of parameters with all they were added up in: each is one piece of memory that stays to the end of the step.
std::set<graph::ValueId> weight_gradients(const graph::Graph& graph);

// The price of a node in the time of as many floating-point operations.
double price(const graph::Graph& graph, const graph::Node& node);

}  // namespace plimsoll::lowering

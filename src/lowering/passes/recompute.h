// Recompute as a pass over the graph: forward nodes of a block are put a second time (in the phase `recompute`) before the
// backward nodes that read what they make, and those read the new values. What is kept, and for how long, then follows from who
// reads what, as it does for everything else; nodes whose second run nobody reads are dropped again.
//
// It runs between the two splits: what tensor ranks exchange is exchanged again with the block, and what data ranks gather is
// gathered for the second run as for the first.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "solvers/chain.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// One piece of a micro-batch's work. A block's first forward is the forward pass; every other one makes it again.
struct RecomputeStep {
  enum class Work : std::uint8_t { forward, rebuild, backward } work = Work::forward;
  graph::BlockId block;  // rebuild: only what is cheap to make again
};

// What runs, in order. It is the same for all ranks, since they must meet in the same collectives. Empty: everything is kept.
struct RecomputeOrder {
  std::vector<RecomputeStep> steps;
  std::vector<std::string> notes;  // for people: what was chosen, what it saves and costs
  double again = 0.0;              // the price of what runs more than once
  // Blocks of which what the forward pass leaves for the backward pass goes to a slower tier, where that was chosen with the steps.
  std::optional<std::set<graph::BlockId>> leaving = {};
};

struct RecomputeChoice {
  strategy::Recompute kind = strategy::Recompute::none;
  std::int64_t every = 1;                 // full: the inputs of every so many blocks are kept
  std::vector<std::int64_t> memory = {};  // optimal, by stage: bytes for what a micro-batch keeps and makes, as strategy/chain counts them;
                                          // less than a stage needs is what it needs
  bool accumulates = false;               // weight gradients are there from the beginning
  double link = 0.0;  // optimal: bytes that can leave, or come back, in the time of one floating-point operation; zero: none
  std::vector<std::int32_t> stage_of_block = {};  // of a pipeline: what runs again does so inside a stage; empty: there is one
  std::vector<std::int32_t> under_way = {};       // by stage: the most micro-batches that have gone forward and not back; empty: one
};

// `graph` is that of the rank with the largest part.
RecomputeOrder order_of_recompute(const graph::Graph& graph, const RecomputeChoice& choice);

// The memory with which "optimal" has a choice: from the least that any order needs to what keeping everything takes.
struct MemoryRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
};
// By stage, zeros where one has no blocks; of `choice` the memory does not count.
std::vector<MemoryRange> memory_ranges(const graph::Graph& graph, const RecomputeChoice& choice);

graph::Graph recompute(const graph::Graph& graph, const RecomputeOrder& order);

}  // namespace plimsoll::lowering

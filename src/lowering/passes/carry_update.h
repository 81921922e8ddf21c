// Updates that follow a verdict, left to the step after: each is made ahead of the first use of its weight there, so that the host updates
// under the next forward pass and not behind the backward pass. The weights that a step computes with are those it would have had; only
// when they are made differs.
//
// A step that leaves its update keeps gradients and the scalars that they are to be applied with in memory that outlives programs,
// `NAME.pending` and `scalars.pending`. Beside it the plan has a program that makes the waiting update and nothing else, for whoever wants
// to see the weights between steps (kFlush). Scalars that say "skip" are an update that has been made.
#pragma once

#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "lowering/passes/stretches.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

inline constexpr std::string_view kFlush = "flush";
inline constexpr std::string_view kPendingSuffix = ".pending";
inline constexpr std::string_view kPendingScalars = "scalars.pending";

// Comes after ranks have shared out gradients. What the device updates itself (`share`) stays where it is.
graph::Graph carry_update(const graph::Graph& graph, const strategy::TierShare& share);

// The waiting update alone, of a graph from carry_update whose gradients and weights are in their tiers.
graph::Graph waiting_update(const graph::Graph& graph);

// What a stretch begins with: a node of the update, for the block that wants what it makes.
struct AheadOfUse {
  graph::NodeId node;
  graph::BlockId block;
};

// By stretch: updates that wait, and what ranks exchange behind them, up to `prefetch` stretches ahead of the first that reads the weight.
// In a pipeline only what one stage does in one phase is ahead of each other.
std::vector<std::vector<AheadOfUse>> ahead_of_use(const graph::Graph& graph, const std::vector<Stretch>& stretches, std::int64_t prefetch,
                                                  bool stages);

}  // namespace plimsoll::lowering

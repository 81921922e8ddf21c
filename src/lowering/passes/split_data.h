// The data axis: every rank has its own samples, and gradients, optimizer states and weights are whole or split over the
// ranks as the ZeRO stage says. From the graph of one rank alone to the graph of a rank among `members`, with the
// collectives where what a rank has and what it needs differ.
//
//   stage   gradients             states and masters   weights
//   0       summed everywhere     whole                whole
//   1       summed in shards      shards               whole: gathered after the update
//   2       kept as shards        shards               whole: gathered after the update
//   3       kept as shards        shards               shards: gathered before a block needs them
//
// In a hybrid (strategy.zero_group) only neighbours share tensors out, and groups of them hold the same: shards are reduced
// inside a group first and then, as small as they are, over the groups, once per step.
//
// A parameter says over which axes its gradient is summed (graph::Parameter::sums_over): one that leaves the data axis out stays whole,
// each rank's own. Axes beside data that share out the batch, or that a gradient is summed over, add up what is complete over the data
// axis, once per step.
//
// What gradients and gathered weights are sent as is a codec's to say, where the strategy names one (codecs/codec.h).
//
// A tensor is split flat, padded so that shards are equal and multiples of ops::kSumBlock. One that would give some rank
// less than a block of its own stays whole, as in stage 0.
#pragma once

#include "graph/graph.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// Whether there is anything to do.
bool sums_over_ranks(const graph::Graph& graph, const strategy::Strategy& strategy);

struct StepFacts {
  std::int32_t micro_batches = 1;  // of one rank
  bool may_skip = false;           // a verdict may say that the step changes nothing
};

graph::Graph split_over_data(const graph::Graph& graph, const strategy::Strategy& strategy, const StepFacts& step);

}  // namespace plimsoll::lowering

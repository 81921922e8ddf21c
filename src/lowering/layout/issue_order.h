// The order in which a rank issues its calls: the pieces of its graph as its items of a pipeline schedule ask for them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "lowering/layout/procedures.h"
#include "strategy/schedules/schedule.h"

namespace plimsoll::lowering {

struct Issue {
  std::size_t piece = 0;
  std::int32_t micro_batch = 0;
  std::int32_t batch = 0;    // the micro-batches of which make one update
  std::int32_t version = 0;  // of the weights it uses: how many updates they have seen
  std::int32_t newest = 0;   // the version that there is by then
  bool accumulate = false;   // gradients are added to what earlier micro-batches of the batch left
  std::int32_t item = 0;     // counts the items of the order
};

// What a message brings is asked for one item before the item that needs it, so that it comes while that one computes. Items are
// those of `batches` batches of equally many micro-batches; what closes a step comes last for all of them.
std::vector<Issue> issue_order(const graph::Graph& graph, const std::vector<Piece>& pieces,
                               const std::vector<strategy::schedules::Item>& items, std::int32_t micro_batches, std::int32_t batches);

// The order of a rank without others: every micro-batch forward through all stages and back, then the update.
std::vector<strategy::schedules::Item> plain_order(const std::vector<std::int32_t>& stages, std::int32_t micro_batches);

}  // namespace plimsoll::lowering

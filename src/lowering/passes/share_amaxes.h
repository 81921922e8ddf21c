// 8-bit operands whose scales come from a history of largest values (fp8 with delayed scaling): ranks that share out a tensor, or the
// samples of a step, tell each other the largest they saw, so that all have one history. It is what a checkpoint holds, whatever the
// layout that reads it.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"

namespace plimsoll::lowering {

struct AmaxRanks {
  std::vector<std::pair<ops::Axis, std::int64_t>> axes;  // with several members each, in the order in which they tell each other
  bool in_turn = false;                                  // data ranks take micro-batches in turn, and do not meet in each
};

bool notes_amaxes(const graph::Graph& graph);

graph::Graph share_amaxes(const graph::Graph& graph, const AmaxRanks& ranks);

}  // namespace plimsoll::lowering

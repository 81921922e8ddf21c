// What lives in slower tiers: the passes that put copies between tiers into a rank's graph, and when the memory of what was copied is
// free again.
#pragma once

#include <map>
#include <vector>

#include "graph/graph.h"
#include "lowering/procedures.h"
#include "lowering/recompute.h"
#include "lowering/streams.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// The last passes over a rank's graph: whatever ranks share out, a rank moves its own.
graph::Graph to_slower_tiers(graph::Graph graph, const strategy::Strategy& strategy, std::int32_t micro_batches,
                             const RecomputeOrder& again);

// Computation waits for what left before the newest copy of its stream, so that little is under way at once.
class LeavingCopies {
 public:
  explicit LeavingCopies(Streams& streams) : streams_(streams) {}

  // Before a piece's call is added.
  void before(const Piece& piece);

 private:
  Streams& streams_;
  std::map<plan::StreamKind, std::vector<std::int32_t>> moments_;  // of copies of what leaves
};

}  // namespace plimsoll::lowering

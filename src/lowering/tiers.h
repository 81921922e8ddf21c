// What lives in slower tiers: the passes that put copies between tiers into a rank's graph, and when the memory of what was copied is
// free again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "lowering/procedures.h"
#include "lowering/recompute.h"
#include "lowering/streams.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// The last passes over a rank's graph: whatever ranks share out, a rank moves its own. `host_beside`: the host is another processor than
// the device.
graph::Graph to_slower_tiers(graph::Graph graph, const strategy::Strategy& strategy, std::int32_t micro_batches,
                             const RecomputeOrder& again, bool host_beside);

// Whether the host updates what is complete while the backward pass goes on: nothing needs to be known of all gradients before, and all
// micro-batches of the step use the same weights.
bool updates_under_backward(const graph::Graph& graph, const strategy::Strategy& strategy);

// When the host updates, in a line for people; empty where it does not.
std::string update_note(const graph::Graph& graph, const strategy::Strategy& strategy);

// Computation waits for what left before the newest copies of a stream, so that little is under way at once: those since the computation
// before it.
class LeavingCopies {
 public:
  explicit LeavingCopies(Streams& streams) : streams_(streams) {}

  // Before a piece's call is added.
  void before(const Piece& piece);

  // Whether the device, which has nothing to compute meanwhile, must wait for what has left before the piece brings more.
  bool must_pause(const Piece& piece) const;
  // The wait: before a call without instructions is added.
  void pause();

 private:
  struct Line {
    std::vector<std::int32_t> moments;  // of copies of what leaves, and of what the host computes
    std::size_t since = 0;              // the first of them since the newest computation of the device
  };

  Streams& streams_;
  std::map<plan::StreamKind, Line> lines_;
};

}  // namespace plimsoll::lowering

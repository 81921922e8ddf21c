// What lives in slower tiers: the passes that put copies between tiers into a rank's graph, and when the memory of what was copied is
// free again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "lowering/layout/procedures.h"
#include "lowering/layout/streams.h"
#include "lowering/lower.h"
#include "lowering/passes/recompute.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// When the host updates.
enum class HostUpdate {
  none,            // it does not
  behind,          // behind the backward pass: clipping and loss scaling wait for all gradients
  under_backward,  // what is complete while the backward pass goes on: nothing needs to be known of all gradients before
  under_forward,   // what had to wait, in the next step, ahead of the first use of each weight
  late,            // a step late, while the device computes the next gradients
};

// Of the first program; a decision for all ranks.
HostUpdate host_update(const LoweringInputs& inputs);

// When the host updates, in a line for people; empty where it does not.
std::string update_note(const graph::Graph& graph, HostUpdate update, const plan::RankClass& fullest);

// Computation waits for what left before the newest copies of a stream, so that little is under way at once: those since the computation
// before it.
class LeavingCopies {
 public:
  explicit LeavingCopies(Streams& streams) : streams_(streams) {}

  // Before a piece's call is added.
  void before(const Piece& piece);

  // Whether the device, which has nothing to compute meanwhile, must wait for what has left before the piece brings more, or computes more
  // of what is there already.
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
  bool brought_ = false;  // something for the update that the host makes next
};

}  // namespace plimsoll::lowering

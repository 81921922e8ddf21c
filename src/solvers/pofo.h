// Recompute and offload chosen together: the fastest way through a chain within a given memory where what is kept for the backward
// pass may also leave over a link while the forward pass goes on, and come back before its turn (the problem of POFO: Beaumont,
// Eyraud-Dubois, Shilova: "Efficient combination of rematerialization and offloading for training DNNs"; the formulation is ours).
//
// The chain is cut into *segments*. A segment of one stage can keep a form of it; a segment of any length can keep nothing but its
// input and run again before its backward pass, by Rotor's programme within the memory that is free then. What a segment keeps (its
// form, and its input where no segment before it keeps that) stays on the device or leaves it. What leaves goes in order; its memory
// is free as it goes, and computation waits where it is not free in time. In the backward pass the same happens in mirrored time:
// it comes in order, and is there before the pass that reads it starts. Nothing that runs again leaves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "solvers/chain.h"
#include "solvers/rotor.h"

namespace plimsoll::solvers {

// Bytes in the time of one unit of the chain's; zero: nothing can leave.
struct ChainLink {
  double out = 0.0;
  double in = 0.0;
};

struct ChainSegment {
  std::int32_t first = 0;
  std::int32_t last = 0;
  std::int32_t form = ChainStep::kOutputOnly;  // kept of a segment of one stage; kOutputOnly: it runs again
  bool leaves = false;                         // what it keeps is not on the device between the passes
  bool waits = false;                          // runs again with nothing coming in meanwhile: more memory, for a wait after it

  bool operator==(const ChainSegment&) const = default;
};

struct JointOrder {
  std::vector<ChainSegment> segments;
  double time = 0.0;
  double waiting = 0.0;    // of the time: for the link
  std::int64_t moved = 0;  // bytes that leave
};

class JointProgramme {
 public:
  JointProgramme(const Chain& chain, std::int64_t memory, const ChainLink& link, const RotorOptions& options = {});

  // nullopt: nothing fits.
  std::optional<JointOrder> fastest() const;
  // The cost of given segments; nullopt where they do not fit.
  std::optional<JointOrder> cost_of(const std::vector<ChainSegment>& segments) const;
  // The passes of these segments, as an order of the whole chain.
  ChainOrder order_of(const JointOrder& joint) const;

 private:
  // Behind some segments, forward, and before them, backward.
  struct State {
    std::int64_t kept = 0;  // bytes on the device from here to there
    double leaving = 0.0;   // bytes still to go when the forward pass is here
    double back = 0.0;      // bytes that are back when the backward pass is here
    double early = 0.0;     // of these, what the segment ahead reads
    double time = 0.0;
    double waiting = 0.0;
    std::int64_t moved = 0;
    bool again = false;  // the last segment runs again: its output is kept by nobody
    std::int32_t form = 0;
    bool left = false;
    std::int32_t parent = -1;
    ChainSegment segment{};
  };

  std::optional<State> behind(const State& before, const ChainSegment& segment) const;
  State start(const State& before, std::int32_t first, bool leaves) const;
  std::int64_t input_of(const State& before, std::int32_t first) const;
  bool go_forward(State& state, const State& before, const ChainSegment& segment, std::int32_t index) const;
  std::optional<State> ended(State state, const State& before, const ChainSegment& segment) const;
  bool go_back(State& state, const State& before, const ChainSegment& segment, std::int64_t item) const;
  std::int64_t free_for(const State& before, const State& state, const ChainSegment& segment, std::int64_t item) const;
  double finish(State& state) const;
  class Border;
  void extend(std::vector<Border>& at, std::size_t boundary) const;

  const Chain& chain_;
  std::int64_t memory_;
  ChainLink link_;
  RotorTable table_;
  std::vector<std::int64_t> later_;  // by stage: weight gradients of those behind it
};

}  // namespace plimsoll::solvers

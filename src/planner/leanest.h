// What holds as little on a device as a strategy can: asked where by estimate nothing fits. Estimates of what comes and goes are too high
// at times, and the search does not ask about everything that lowering can do with less memory: smaller buckets, windows and tiles,
// activations in parts. Whoever makes the plans of these has asked lowering itself.
#pragma once

#include <vector>

#include "planner/estimate.h"
#include "planner/space.h"

namespace plimsoll::planner {

struct Lean {
  Choice choice;
  Bounds bounds;
};

// Of every division of the ranks, strategies with everything in shards and in the slower tiers, with smaller and smaller pieces under way:
// what is bounded to need least first. All are legal. Left out is what is bounded to need several times the device's memory.
std::vector<Lean> leanest(Estimator& estimator, const Space& space, const Pins& pins);

}  // namespace plimsoll::planner

// When, outside the update's own phase, an update that is made elsewhere runs (offload.h).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "lowering/passes/carry_update.h"
#include "lowering/passes/offload.h"
#include "lowering/passes/stretches.h"

namespace plimsoll::lowering {

struct UpdateTimes {
  // Around a stretch.
  struct Work {
    std::vector<AheadOfUse> ahead;       // updates that waited, before the stretch
    std::vector<graph::NodeId> starts;   // updates whose weights change later, in a step's first micro-batch
    std::vector<graph::NodeId> ready;    // updates
    std::vector<graph::NodeId> waiting;  // what is kept for the next step
  };
  std::vector<Work> work;                       // by stretch
  std::map<std::uint32_t, std::size_t> put_at;  // updated weight -> the stretch behind which it may change
  std::set<std::uint32_t> early;                // nodes that are done so
};

// `values` are the graph's, in the tiers where they are to be. Updates with preludes stay where they are.
UpdateTimes update_times(const graph::Graph& graph, const base::IdVector<graph::ValueId, graph::Value>& values,
                         const std::vector<Stretch>& stretches, const OffloadOptions& options);

}  // namespace plimsoll::lowering

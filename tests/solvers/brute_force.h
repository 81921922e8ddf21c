// The fastest order of a short chain by trying everything: a shortest path over all that can be in memory.
#pragma once

#include <cstdint>
#include <optional>

#include "solvers/chain.h"

namespace plimsoll::solvers {

enum class Drops {
  checkpoints,  // a stage's input stays as long as the stage's form does: the published model
  anything,     // whatever is in memory may be dropped at any time
};

// The least time, or nullopt where nothing fits.
std::optional<double> brute_force(const Chain& chain, std::int64_t memory, Drops drops);

}  // namespace plimsoll::solvers

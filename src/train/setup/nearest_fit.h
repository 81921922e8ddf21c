// What would fit where a run does not: changes to its strategy, the cheapest first, tried on its plan.
#pragma once

#include <string>

#include "train/setup/setup.h"

namespace plimsoll::train {

// In the words of a run file: "With \"recompute\": \"full\" it would fit: ...". Where nothing that is tried fits, what else there is.
std::string nearest_fit(const SessionOptions& options, const Capacity& capacity);

}  // namespace plimsoll::train

// What would fit where a run does not: changes to its strategy, the cheapest first, tried on its plan.
#pragma once

#include <optional>
#include <string>

#include "train/setup/setup.h"

namespace plimsoll::train {

// The first of the changes with which it fits; nullopt: none does.
std::optional<strategy::Strategy> nearest_strategy(const SessionOptions& options, const Capacity& capacity);

// In the words of a run file: "With \"recompute\": \"full\" it would fit: ...". Where nothing that is tried fits, what else there is.
std::string nearest_fit(const SessionOptions& options, const Capacity& capacity);

}  // namespace plimsoll::train

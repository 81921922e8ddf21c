// The step of a run whose calls are timed: which plans are small enough for it, and the times of all classes of ranks in one place.
#pragma once

#include <vector>

#include "executor/core/timeline.h"
#include "plan/plan.h"
#include "report/page.h"
#include "train/session/session.h"

namespace plimsoll::train {

// Whether a step of the plan is small enough to be traced and drawn.
bool is_drawn(const plan::Plan& plan);

// When the calls of every class ran in the traced step; empty where no step was traced. Called by all ranks together.
std::vector<report::ClassTimes> gathered_times(Session& session, const executor::Timeline& timeline);

}  // namespace plimsoll::train

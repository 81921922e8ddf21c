// Whether the ranks of a plan meet: every message that one waits for is sent, every collective is the same on all its members, and
// no ranks wait for each other. Found by running the programs of all classes against each other without their work.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll::plan {

// For a plan whose indices are in range. At most one problem for each program.
std::vector<std::string> meeting_problems(const Plan& plan);

}  // namespace plimsoll::plan

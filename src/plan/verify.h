// What a plan must satisfy before anything runs it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace plimsoll::plan {

// Every way in which the plan is wrong; empty for a good one:
//   - every index is in range, every binding has its slot's type, every frame is large enough;
//   - in a procedure nothing is read before it is written, and what is alive at once does not overlap in the frame;
//   - in a program nothing is read before it is written, no call waits for a token that can never come (deadlock), and
//     no two buffers that are alive at once overlap in an arena;
//   - run against each other, no two ranks wait for each other, all meet in the same collectives, and every message that is sent
//     is received (meetings.h);
//   - every buffer lies inside its arena, and the arena is as large as it must be, not larger.
std::vector<std::string> problems(const Plan& plan);

// Stops with the list when there are problems.
void verify(const Plan& plan, std::string_view after);

}  // namespace plimsoll::plan

// Whether a schedule can be run and computes what it should; pure, and the same for built-in schedules and a user's file.
//
//   - every forward and every backward (whole, or both of its parts) exactly once, on the rank that holds the stage;
//   - each rank's order has a piece after what it needs on the same rank, and no two ranks wait for each other;
//   - a backward uses the weights of its forward, and no piece uses weights that are not there yet;
//   - each batch's gradients are complete on a rank before the rank's update, and every batch has its update.
#pragma once

#include <string>
#include <vector>

#include "strategy/schedules/schedule.h"

namespace plimsoll::strategy::schedules {

// Each problem names the rank, the item and the reason; empty: the schedule is right. At most a dozen are listed.
std::vector<std::string> problems_of(const Schedule& schedule);

// not_legal with all problems.
void require_valid(const Schedule& schedule);

}  // namespace plimsoll::strategy::schedules

// Schedules as text, so that a user can bring one: a line for each item, in the order of its rank.
//
//   rank,work,stage,micro_batch,version,joined
//   0,forward,0,0,0,0
//   0,update,,,1,0
//
// The first line names the columns, in any order. `version` and `joined` may be left out: they are then 0. A file without updates
// means one at the end of each rank's order. Empty lines and lines that start with # are skipped. Which rank holds which stage is
// read from the file too: of the known placements, the one that most lines agree with.
#pragma once

#include <string>
#include <string_view>

#include "strategy/schedules/schedule.h"

namespace plimsoll::strategy::schedules {

inline constexpr std::string_view kCsvSuffix = ".csv";

// bad_input with line and column for what is no such text, or names a rank, stage or micro-batch that the shape does not have.
// The shape's batches are as many as the file has updates. Whether the schedule can be run is verify.h's business.
Schedule parse_csv(std::string_view text, std::string_view name, const Shape& shape);

std::string write_csv(const Schedule& schedule);

}  // namespace plimsoll::strategy::schedules

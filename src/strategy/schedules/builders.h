// One function for each schedule, each in the file of its name. They take any shape that the schedule's row in the table
// (table.h) finds no reason against; callers go through `build`, which asks.
#pragma once

#include "strategy/schedules/schedule.h"

namespace plimsoll::strategy::schedules {

Schedule gpipe(const Shape& shape);
Schedule one_f_one_b(const Shape& shape);
Schedule interleaved(const Shape& shape);
Schedule varuna(const Shape& shape);
Schedule zb_h1(const Shape& shape);
Schedule zb_h2(const Shape& shape);
Schedule dualpipe(const Shape& shape);
Schedule naive(const Shape& shape);
Schedule pipedream(const Shape& shape);
Schedule pipedream_vsync(const Shape& shape);
Schedule two_buffered(const Shape& shape);

}  // namespace plimsoll::strategy::schedules

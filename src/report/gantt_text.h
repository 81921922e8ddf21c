// Pipeline schedules in a terminal: a row for each rank, time to the right, micro-batch numbers in the pieces; at the right end
// what the rank holds at most. Without colour, the letter that fills a piece says what it is.
#pragma once

#include <span>
#include <string>

#include "report/gantt.h"

namespace plimsoll::report {

struct GanttStyle {
  bool color = false;
  int width = 110;
};

std::string gantt_text(std::span<const Gantt> gantts, const GanttStyle& style);

}  // namespace plimsoll::report

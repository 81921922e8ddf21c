// Schedules side by side in figures: what each costs in time, memory and messages, for those that are not drawn.
#pragma once

#include <span>
#include <string>

#include "report/gantt.h"

namespace plimsoll::report {

struct GanttRow {
  std::string name;
  bool drawn = false;
  std::string reason;  // why it cannot be used here; empty: it can, and `gantt` holds it
  Gantt gantt;
};

std::string gantt_table(std::span<const GanttRow> rows, bool color);

}  // namespace plimsoll::report

// Schedules side by side in figures: what each costs in time, memory and messages, for those that are not drawn.
#pragma once

#include <span>
#include <string>

#include "report/gantt_text.h"

namespace plimsoll::report {

struct GanttRow {
  std::string name;
  bool drawn = false;
  std::string reason;  // why it cannot be used here; empty: it can, and `gantt` holds it
  Gantt gantt;
};

// What a schedule is about stands behind its figures where the width has room for it.
std::string gantt_table(std::span<const GanttRow> rows, const GanttStyle& style);

}  // namespace plimsoll::report

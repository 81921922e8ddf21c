// What a page draws of a simulated plan: all of it, or of an outline as many classes of ranks as a page holds.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "report/page.h"
#include "train/foresight/forecast.h"

namespace plimsoll::cli {

struct DrawnPlan {
  plan::Plan plan;
  bool outlined = false;
  std::vector<report::ClassTimes> times;
};

// `forecast` was made with spans. What is left out is said in the plan's notes.
DrawnPlan drawn_plan(train::Forecast forecast);

}  // namespace plimsoll::cli

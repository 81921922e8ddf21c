// A planner's choice as the run file's "strategy" says it.
#pragma once

#include "base/json.h"
#include "planner/problem.h"

namespace plimsoll::cli {

base::Json strategy_json(const planner::Choice& choice);

}  // namespace plimsoll::cli

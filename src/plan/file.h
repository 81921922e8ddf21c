// A plan as JSON, to be stored beside a run and read back; reading checks everything, the verifier included.
#pragma once

#include <string>

#include "base/json.h"
#include "plan/plan.h"

namespace plimsoll::plan {

// The JSON text, on one line, without a tree of all of it in memory.
std::string to_text(const Plan& plan);

base::Json to_json(const Plan& plan);

// bad_input with place and reason when the text is not a plan, or is one that must not run.
Plan plan_from_json(const base::Json& json);

}  // namespace plimsoll::plan

// A plan in words: complete, one fact per line, so that two plans can be compared as text.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll::plan {

std::string to_string(const Plan& plan);
std::string to_string(const Procedure& procedure);

// Lines that only `before` has ("- ...") and that only `after` has ("+ ..."), in order; empty for equal plans.
std::vector<std::string> diff(const Plan& before, const Plan& after);

}  // namespace plimsoll::plan

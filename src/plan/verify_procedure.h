// Whether a procedure is sound by itself: its operands exist and fit, nothing is read before it is written, and temporaries that live at
// once lie apart.
#pragma once

#include "plan/plan.h"
#include "plan/problems.h"

namespace plimsoll::plan {

// `rank` is one that calls it: degrees of the mesh are as that rank has them.
void check_procedure(const Plan& plan, const Procedure& procedure, std::int32_t rank, Report& report);

}  // namespace plimsoll::plan

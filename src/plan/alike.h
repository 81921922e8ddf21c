// Ranks that make the same calls, so that what holds for one need not be found out again for the others.
#pragma once

#include "plan/plan.h"

namespace plimsoll::plan {

// Whether the classes share their buffers and the streams of all programs, which say that they touch the same, and corresponding procedures
// have the same form. False says nothing: calls that are not shared are not compared.
bool share_calls(const Plan& plan, const RankClass& a, const RankClass& b);

}  // namespace plimsoll::plan

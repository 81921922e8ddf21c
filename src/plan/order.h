// Whether the streams of a program wait for each other where they must.
#pragma once

#include <optional>
#include <string>

#include "plan/plan.h"

namespace plimsoll::plan {

// Two calls of different streams that meet in memory, one of them writing, with nothing that makes the later wait for
// the earlier; nullopt if there is no such pair.
std::optional<std::string> order_problem(const RankClass& rank_class, std::int32_t program);

}  // namespace plimsoll::plan

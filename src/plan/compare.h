// Two plans side by side in figures: what each takes of every tier, what it calls and what it sends. `diff` says where the lines differ.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll::plan {

struct Compared {
  std::string name;  // "device, fullest rank"
  bool bytes = true;
  std::int64_t before = 0;
  std::int64_t after = 0;
};

// Peaks by tier of the fullest rank, what its device holds there by kind, calls and bytes sent of each program; what neither has is left
// out.
std::vector<Compared> compare(const Plan& before, const Plan& after);

}  // namespace plimsoll::plan

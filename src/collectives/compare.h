// Do all members of a group ask for the same thing? Every member compares all calls, so all of them find the same fault, or none.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "collectives/call.h"
#include "collectives/group.h"

namespace plimsoll::collectives {

// `calls`: one for each member. Throws, naming the ranks that differ from most others, and both calls.
void compare_calls(std::string_view group, std::span<const int> members, std::span<const Call> calls);

// Counts of parts must be equal; in all_to_all, part j of what i gives must be part i of what j wants.
struct PinnedCounts {
  std::function<Counts(int)> given;
  std::function<Counts(int)> wanted;
};
void compare_counts(std::string_view group, std::span<const int> members, const Call& call, const PinnedCounts& counts);

}  // namespace plimsoll::collectives

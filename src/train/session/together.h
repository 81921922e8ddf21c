// What ranks do together between programs: exchange small things, and fail as one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/group.h"

namespace plimsoll::train {

// Tells every member, and is told by every member: the texts in member order; of one rank alone (no group), its own.
std::vector<std::string> tell_all(collectives::Group* group, const std::string& text);

// Everybody's number.
std::vector<std::int64_t> tell_all(collectives::Group* group, std::int64_t number);

// Runs `work` on every member and waits for all. When it throws on some, all throw: the first failing member's error, by
// its rank. So a rank that cannot write its part of a checkpoint takes nobody into a half-done save.
void together(collectives::Group* group, const std::function<void()>& work);

}  // namespace plimsoll::train

// The table of update rules, made from the list in all.h.
#pragma once

#include <span>
#include <string_view>

#include "ops/optim/rule.h"

namespace plimsoll::ops {

std::span<const UpdateRule> update_rules();

// nullptr: there is none.
const UpdateRule* find_update_rule(std::string_view name);
// One that there is.
const UpdateRule& update_rule(std::string_view name);

// Whether parameters that the rule updates, or leaves to another, go by a setting of that name.
bool goes_by(const UpdateRule& rule, std::string_view number);

}  // namespace plimsoll::ops

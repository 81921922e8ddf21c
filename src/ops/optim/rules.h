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

}  // namespace plimsoll::ops

// The table of rules of masks, made from the list in all.h.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ops/masks/mask.h"

namespace plimsoll::ops {

std::span<const MaskRule> mask_rules();

// nullptr: there is none.
const MaskRule* find_mask_rule(std::string_view name);

// What is wrong with the numbers; empty: nothing.
std::string problem_of(const MaskPattern& pattern);

}  // namespace plimsoll::ops

// Every question that a strategy answers, in the order in which they are shown and documented.
#pragma once

#include <span>
#include <vector>

#include "strategy/dimension.h"

namespace plimsoll::strategy {

std::span<const Dimension> dimensions();

// nullptr: there is no such key.
const Dimension* find_dimension(std::string_view key);

// Parts of the table, one function per file.
std::vector<Dimension> mesh_dimensions();
std::vector<Dimension> schedule_dimensions();
std::vector<Dimension> recompute_dimensions();
std::vector<Dimension> tier_dimensions();
std::vector<Dimension> update_dimensions();

}  // namespace plimsoll::strategy

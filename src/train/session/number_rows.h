// Which rows of the token table a program reads, where the table is on disk (lowering/rows.h): ids that occur are numbered in their order,
// so that a drive is read in one direction and the sums of a row's gradient are those of the whole table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/group.h"

namespace plimsoll::train {

// Puts the different ids of all micro-batches, and of all ranks of the group (null: of this one), into `rows`, in order, and -1 behind
// them; and into `tokens`, in the place of every id, its place in `rows`. bad_input where an id is negative.
void number_rows(std::span<const std::span<std::int32_t>> tokens, std::span<std::int32_t> rows, collectives::Group* group);

}  // namespace plimsoll::train

// What a search leaves as it is and a strategy at the limit of its memory has to gain from: how large the tiles are that weights come in,
// how much is under way at once, how many blocks are made again together.
#pragma once

#include <vector>

#include "planner/space.h"

namespace plimsoll::planner {

// Choices that differ from `choice` in one of these, as far as nobody pinned it.
std::vector<Choice> finer(const Problem& problem, const Space& space, const Pins& pins, const Choice& choice);

// What somebody would try by hand with the ranks divided as they are in `choice`: everything that may be made again and every tier, in
// whole weights or the search's tiles.
std::vector<Choice> plain(const Problem& problem, const Space& space, const Pins& pins, const Choice& choice);

// The smallest tile that is worth a kernel and that no weight has too many of.
Bytes least_tile(const Problem& problem);

// So many of them on the device, or as few as there can be.
Bytes tile_for(const Problem& problem, std::int64_t on_device);

}  // namespace plimsoll::planner

// How a weight is cut into tiles of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "graph/graph.h"

namespace plimsoll::lowering {

struct TileRows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// The tiles of a (rows, width) matrix of more than `most` bytes: equal but for the last, and multiples of kSumBlock elements where a tile
// has so many. not_legal where they would be too many, or a row does not fit in one.
std::vector<TileRows> tile_rows(const graph::Value& weight, base::Bytes most);

}  // namespace plimsoll::lowering

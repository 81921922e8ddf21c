#include "lowering/passes/tile_rows.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/step_scalars.h"

namespace plimsoll::lowering {

namespace {

// A plan has calls for every tile of every layer.
constexpr std::int64_t kMostTiles = 1024;

}  // namespace

std::vector<TileRows> tile_rows(const graph::Value& weight, base::Bytes most) {
  const std::int64_t rows = weight.type.shape[0];
  const std::int64_t width = weight.type.shape[1];
  const std::int64_t row_bytes = width * base::size_of(weight.type.dtype);
  std::int64_t in_tile = most.count / row_bytes;
  if (in_tile == 0)
    base::not_legal("\"tile\" is {}, but a row of {} has {}; use at least that", base::to_string(most), weight.name,
                    base::to_string(base::Bytes{row_bytes}));
  const std::int64_t tiles = (rows + in_tile - 1) / in_tile;
  if (tiles > kMostTiles)
    base::not_legal("\"tile\" is {}, which cuts {} of {} into {} tiles; use {} or more, which makes at most {}", base::to_string(most),
                    weight.name, base::to_string(base::Bytes{weight.type.bytes()}), tiles,
                    base::to_string(base::Bytes{(rows + kMostTiles - 1) / kMostTiles * row_bytes}), kMostTiles);
  const std::int64_t unit = ops::kSumBlock / std::gcd(width, ops::kSumBlock);
  const std::int64_t even = (rows + tiles - 1) / tiles;
  in_tile = in_tile < unit ? even : std::min(in_tile / unit * unit, (even + unit - 1) / unit * unit);
  std::vector<TileRows> all;
  for (std::int64_t first = 0; first < rows; first += in_tile) all.push_back({first, std::min(in_tile, rows - first)});
  return all;
}

}  // namespace plimsoll::lowering

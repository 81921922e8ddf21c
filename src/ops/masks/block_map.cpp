#include "ops/masks/block_map.h"

#include <algorithm>

namespace plimsoll::ops {

namespace {

// Of queries and keys counted from 0, the pairs whose distance is below `bound`.
double pairs_below(std::int64_t queries, std::int64_t keys, std::int64_t bound) {
  const std::int64_t all_keys = std::clamp<std::int64_t>(bound, 0, queries);  // queries that come before every key by less
  // Query i >= bound has keys [i - bound + 1, keys).
  const std::int64_t first = std::max<std::int64_t>(bound, 0);
  const std::int64_t last = std::min(queries - 1, bound + keys - 2);
  const double whole = static_cast<double>(all_keys) * static_cast<double>(keys);
  if (last < first) return whole;
  const double count = static_cast<double>(last - first + 1);
  const double most = static_cast<double>(keys - 1 - first + bound);
  const double least = static_cast<double>(keys - 1 - last + bound);
  return whole + count * (most + least) / 2.0;
}

double pairs_in_band(const Band& band, const MaskTile& tile) {
  const Band rows = band_of_rows(band, tile.queries.first - tile.keys.first, tile.queries.step);
  const std::int64_t farthest = tile.queries.count + tile.keys.count;
  const auto within = [&](std::int64_t bound) { return std::clamp(bound, -farthest, farthest); };
  return pairs_below(tile.queries.count, tile.keys.count, within(rows.high)) -
         pairs_below(tile.queries.count, tile.keys.count, within(rows.low));
}

double pairs_by_quarters(const Mask& mask, const MaskTile& tile) {
  if (tile.queries.count == 0 || tile.keys.count == 0) return 0.0;
  const Sight sight = mask.sight(tile);
  if (sight == Sight::none) return 0.0;
  if (sight == Sight::all) return static_cast<double>(tile.queries.count) * static_cast<double>(tile.keys.count);
  if (tile.queries.count == 1 && tile.keys.count == 1) return mask.visible(tile.queries.first, tile.keys.first, tile.head) ? 1.0 : 0.0;
  const std::int64_t upper = (tile.queries.count + 1) / 2;
  const std::int64_t left = (tile.keys.count + 1) / 2;
  double pairs = 0.0;
  for (const Stretch& queries : {tile.queries.part(0, upper), tile.queries.part(upper, tile.queries.count - upper)}) {
    for (const Stretch& keys : {tile.keys.part(0, left), tile.keys.part(left, tile.keys.count - left)})
      pairs += pairs_by_quarters(mask, {queries, keys, tile.head});
  }
  return pairs;
}

}  // namespace

double visible_pairs(const Mask& mask, const MaskTile& whole) {
  const bool alike = whole.queries.step == whole.keys.step;
  return mask.pattern.rule == nullptr && alike ? pairs_in_band(mask.band, whole) : pairs_by_quarters(mask, whole);
}

BlockMap block_map(const Mask& mask, const MaskTile& whole, const BlockShape& shape) {
  BlockMap map;
  map.begins.push_back(0);
  for (std::int64_t query = 0; query < whole.queries.count; query += shape.queries) {
    const Stretch queries = whole.queries.part(query, std::min(shape.queries, whole.queries.count - query));
    for (std::int64_t key = 0; key < whole.keys.count; key += shape.keys) {
      const Stretch keys = whole.keys.part(key, std::min(shape.keys, whole.keys.count - key));
      const Sight sight = mask.sight({queries, keys, whole.head});
      if (sight == Sight::none) continue;
      map.blocks.push_back({.keys = key / shape.keys, .full = sight == Sight::all});
      map.pairs += static_cast<double>(queries.count) * static_cast<double>(keys.count);
    }
    map.begins.push_back(map.blocks.size());
  }
  return map;
}

}  // namespace plimsoll::ops

#include "strategy/dimensions.h"

#include <algorithm>

namespace plimsoll::strategy {

std::span<const Dimension> dimensions() {
  static const std::vector<Dimension> all = [] {
    std::vector<Dimension> rows;
    for (const auto part : {mesh_dimensions, schedule_dimensions, recompute_dimensions, tier_dimensions, update_dimensions}) {
      const std::vector<Dimension> some = part();
      rows.insert(rows.end(), some.begin(), some.end());
    }
    return rows;
  }();
  return all;
}

const Dimension* find_dimension(std::string_view key) {
  const auto found = std::ranges::find(dimensions(), key, &Dimension::key);
  return found == dimensions().end() ? nullptr : &*found;
}

}  // namespace plimsoll::strategy

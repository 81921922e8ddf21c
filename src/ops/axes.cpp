#include "ops/axes.h"

namespace plimsoll::ops {

namespace {

bool is_inside(const std::vector<AxisRow>& rows, AxisRow row, const Axis& outer) {
  while (row.inside.valid() && row.inside != outer) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const AxisRow& other) { return other.axis == row.inside; });
    if (found == rows.end()) return false;
    row = *found;
  }
  return row.inside == outer;
}

}  // namespace

// Of several inside the same one, each is inside those before it: so rows that are nested already stay in their order.
std::vector<AxisRow> nested(std::span<const AxisRow> further) {
  std::vector<AxisRow> rows;
  for (const AxisRow& row : kAxes) {
    if (!row.part_of.valid()) rows.push_back(row);
  }
  for (const AxisRow& row : further) {
    auto at = rows.begin();
    if (row.inside.valid()) {
      at = std::find_if(rows.begin(), rows.end(), [&](const AxisRow& other) { return other.axis == row.inside; });
      if (at == rows.end()) continue;
      ++at;
    }
    while (at != rows.end() && known_axis(at->axis) == nullptr && (!row.inside.valid() || is_inside(rows, *at, row.inside))) ++at;
    rows.insert(at, row);
  }
  return rows;
}

std::string_view name_of(const Axis& axis) { return axis.name(); }

std::string_view name_of(Shares shares) {
  constexpr std::array<std::string_view, kShares> kNames{"nothing", "batch", "tensors", "blocks"};
  return kNames.at(static_cast<std::size_t>(shares));
}

}  // namespace plimsoll::ops

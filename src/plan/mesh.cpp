#include "plan/mesh.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace plimsoll::plan {

namespace {

std::vector<MeshAxis> one_rank() {
  std::vector<MeshAxis> axes;
  for (const ops::AxisRow& row : ops::nested({})) axes.push_back({.row = row});
  return axes;
}

bool is_part(const MeshAxis& axis) { return axis.row.part_of.valid(); }

// Of a part, the place on it of who is at `whole` on its axis; -1: that place is not on it.
std::int32_t place_on_part(const MeshAxis& part, std::int32_t whole, std::int32_t extent) {
  if (part.row.some_places && (whole % part.step != 0 || whole / part.step >= extent)) return -1;
  return whole / part.step % extent;
}

}  // namespace

Mesh::Mesh() : Mesh(one_rank()) {}

Mesh::Mesh(std::vector<MeshAxis> axes) : table_(std::move(axes)) {
  for (std::size_t index = 0; index < table_.size(); ++index) strides_.push_back(stride_of(index, 0));
}

void Mesh::add_part(const ops::Axis& axis, std::int32_t extent, std::int32_t step) {
  const ops::AxisRow* row = ops::known_axis(axis);
  PLIMSOLL_CHECK(row != nullptr && row->part_of.valid() && find(row->part_of) != nullptr && find(axis) == nullptr,
                 "{} is no part of an axis that is there", axis.name());
  table_.push_back({.row = *row, .extent = extent, .step = step});
  strides_.push_back(strides_[index(row->part_of)] * step);
}

void Mesh::add_inner(std::int32_t data, std::int32_t tensor) {
  if (data > 0) {
    add_part(ops::Axis::data_outer, extent(ops::Axis::data) / data, data);
    add_part(ops::Axis::data_inner, data, 1);
  }
  if (tensor > 1) add_part(ops::Axis::tensor_inner, tensor, 1);
}

void Mesh::tie(std::int32_t place) {
  if (place > 0) add_part(ops::Axis::tied, 2, place);
}

const MeshAxis* Mesh::find(const ops::Axis& axis) const {
  for (const MeshAxis& entry : table_) {
    if (entry.row.axis == axis) return &entry;
  }
  return nullptr;
}

std::uint32_t Mesh::index(const ops::Axis& axis) const {
  const MeshAxis* entry = find(axis);
  PLIMSOLL_CHECK(entry != nullptr, "no ranks are on an axis {}", axis.name());
  return static_cast<std::uint32_t>(entry - table_.data());
}

std::int32_t Mesh::extent_of(std::size_t index, std::int32_t pipe_place) const {
  const MeshAxis& entry = table_[index];
  const bool everywhere = even() || entry.row.shares == ops::Shares::blocks;
  return everywhere ? entry.extent : own_[static_cast<std::size_t>(pipe_place)][index];
}

std::int32_t Mesh::stride_of(std::size_t index, std::int32_t pipe_place) const {
  std::int32_t stride = 1;
  for (std::size_t inner = index + 1; inner < table_.size(); ++inner) {
    if (!is_part(table_[inner])) stride *= extent_of(inner, pipe_place);
  }
  return stride;
}

std::int32_t Mesh::first_rank(std::int32_t pipe_place) const {
  const std::uint32_t pipe = index(ops::Axis::pipe);
  if (even()) return pipe_place * strides_[pipe];
  std::int32_t first = 0;
  for (std::int32_t before = 0; before < pipe_place; ++before) first += stride_of(pipe, before);
  return first;
}

std::int32_t Mesh::ranks() const {
  if (!even()) return first_rank(extent(ops::Axis::pipe));
  std::int32_t ranks = 1;
  for (const MeshAxis& entry : table_) ranks *= is_part(entry) ? 1 : entry.extent;
  return ranks;
}

std::int32_t Mesh::pipe_place_of(std::int32_t rank) const {
  const std::uint32_t pipe = index(ops::Axis::pipe);
  if (even()) return rank / strides_[pipe] % table_[pipe].extent;
  std::int32_t place = 0;
  std::int32_t next = stride_of(pipe, 0);
  while (place + 1 < table_[pipe].extent && rank >= next) next += stride_of(pipe, ++place);
  return place;
}

std::int32_t Mesh::extent(const ops::Axis& axis) const {
  const MeshAxis* entry = find(axis);
  return entry == nullptr ? 1 : entry->extent;
}

std::int32_t Mesh::extent_at(const ops::Axis& axis, std::int32_t pipe_place) const {
  return find(axis) == nullptr ? 1 : extent_of(index(axis), pipe_place);
}

std::int32_t Mesh::extent(const ops::Axis& axis, std::int32_t rank) const {
  if (even()) return extent(axis);
  return extent_at(axis, pipe_place_of(rank));
}

std::int32_t Mesh::stride(const ops::Axis& axis, std::int32_t rank) const {
  const MeshAxis* entry = find(axis);
  if (entry == nullptr) return 1;
  if (even()) return strides_[index(axis)];
  const std::uint32_t whole = is_part(*entry) ? index(entry->row.part_of) : index(axis);
  return stride_of(whole, pipe_place_of(rank)) * (is_part(*entry) ? entry->step : 1);
}

std::int32_t Mesh::place(const ops::Axis& axis, std::int32_t rank) const {
  const MeshAxis* entry = find(axis);
  if (entry == nullptr) return 0;
  if (is_part(*entry)) return place_on_part(*entry, place(entry->row.part_of, rank), extent(axis, rank));
  if (even()) return rank / strides_[index(axis)] % entry->extent;
  const std::int32_t pipe_place = pipe_place_of(rank);
  if (axis == ops::Axis::pipe) return pipe_place;
  return (rank - first_rank(pipe_place)) / stride(axis, rank) % extent_at(axis, pipe_place);
}

bool Mesh::sits_on(const ops::Axis& axis, std::int32_t rank) const {
  if (place(axis, rank) < 0) return false;
  return axis != ops::Axis::pipe || even() || rank == first_rank(pipe_place_of(rank));
}

std::vector<std::int32_t> Mesh::group(const ops::Axis& axis, std::int32_t rank) const {
  const MeshAxis* entry = find(axis);
  if (entry == nullptr) return {rank};
  std::vector<std::int32_t> ranks;
  if (!even() && entry->row.shares == ops::Shares::blocks) {
    // Of places that differ only the first ranks meet; a part of the axis joins places that are alike.
    const std::int32_t beside = is_part(*entry) ? rank - first_rank(pipe_place_of(rank)) : 0;
    for (std::int32_t at = 0; at < entry->extent; ++at) ranks.push_back(first_rank(at * entry->step) + beside);
    return ranks;
  }
  const std::int32_t apart = stride(axis, rank);
  const std::int32_t back =
      entry->row.some_places ? place(entry->row.part_of, rank) * stride(entry->row.part_of, rank) : place(axis, rank) * apart;
  for (std::int32_t at = 0; at < extent(axis, rank); ++at) ranks.push_back(rank - back + at * apart);
  return ranks;
}

std::vector<ops::Axis> Mesh::axes(std::int32_t rank) const {
  std::vector<ops::Axis> found;
  for (const MeshAxis& entry : table_) {
    if (sits_on(entry.row.axis, rank) && extent(entry.row.axis, rank) > 1) found.push_back(entry.row.axis);
  }
  return found;
}

template <typename Wanted>
std::vector<std::int32_t> Mesh::spread(std::int32_t rank, const Wanted& wanted) const {
  std::vector<std::int32_t> ranks{rank};
  for (const MeshAxis& entry : table_) {
    if (is_part(entry) || !wanted(entry.row) || extent(entry.row.axis, rank) == 1) continue;
    const std::int32_t apart = stride(entry.row.axis, rank);
    const std::int32_t back = place(entry.row.axis, rank) * apart;
    std::vector<std::int32_t> wider;
    for (const std::int32_t each : ranks) {
      for (std::int32_t at = 0; at < extent(entry.row.axis, rank); ++at) wider.push_back(each - back + at * apart);
    }
    ranks = std::move(wider);
  }
  return ranks;
}

std::vector<std::int32_t> Mesh::alike(std::int32_t rank) const {
  if (!even()) return {rank};
  return spread(rank, [](const ops::AxisRow& row) { return !row.differs(); });
}

std::vector<std::int32_t> Mesh::sharing(ops::Shares shares, std::int32_t rank) const {
  return spread(rank, [&](const ops::AxisRow& row) { return row.shares == shares; });
}

std::int32_t Mesh::extent(ops::Shares shares, std::int32_t rank) const {
  std::int32_t ranks = 1;
  for (const MeshAxis& entry : table_) {
    if (!is_part(entry) && entry.row.shares == shares) ranks *= extent(entry.row.axis, rank);
  }
  return ranks;
}

std::int32_t Mesh::place(ops::Shares shares, std::int32_t rank) const {
  std::int32_t found = 0;
  for (const MeshAxis& entry : table_) {
    if (!is_part(entry) && entry.row.shares == shares) found = found * extent(entry.row.axis, rank) + place(entry.row.axis, rank);
  }
  return found;
}

std::int32_t Mesh::tied_place() const {
  const MeshAxis* tied = find(ops::Axis::tied);
  return tied == nullptr ? 0 : tied->step;
}

}  // namespace plimsoll::plan

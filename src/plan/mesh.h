// Which ranks there are and whom each meets: an entry for every axis that the ranks of a plan are on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/axes.h"

namespace plimsoll::plan {

struct MeshAxis {
  ops::AxisRow row;
  std::int32_t extent = 1;
  std::int32_t step = 1;  // of a part of an axis: how many of that axis's places neighbours are apart

  bool operator==(const MeshAxis&) const = default;
};

// Axes of their own stand outermost first, parts of them behind: of what two ranks share, the innermost axes count last. An axis that is
// not in the table has one rank.
//
// Where places of the pipe axis have extents of their own, a micro-batch goes to one data place of each, in turn, and the pipe axis is the
// first ranks of the places.
class Mesh {
 public:
  Mesh();  // of one rank
  explicit Mesh(std::vector<MeshAxis> axes);

  // A part of an axis.
  void add_part(const ops::Axis& axis, std::int32_t extent, std::int32_t step);
  // Those of the data and the tensor axis; 0, or 1: no inner one.
  void add_inner(std::int32_t data, std::int32_t tensor);
  // Joins the first place of the pipe axis with this one; 0: none.
  void tie(std::int32_t place);
  // `extents`: for each place of the pipe axis, those of all entries of the table; those of the pipe axis and its parts do not count.
  void set_own(std::vector<std::vector<std::int32_t>> extents) { own_ = std::move(extents); }

  const std::vector<MeshAxis>& table() const { return table_; }
  const MeshAxis* find(const ops::Axis& axis) const;  // null: one rank
  // Of an axis that is there: its place in the table.
  std::uint32_t index(const ops::Axis& axis) const;

  bool even() const { return own_.empty(); }
  const std::vector<std::vector<std::int32_t>>& own() const { return own_; }
  std::int32_t ranks() const;
  std::int32_t first_rank(std::int32_t pipe_place) const;
  // Of an even mesh, or the pipe axis.
  std::int32_t extent(const ops::Axis& axis) const;
  std::int32_t extent_at(const ops::Axis& axis, std::int32_t pipe_place) const;
  std::int32_t extent(const ops::Axis& axis, std::int32_t rank) const;
  // -1 where it does not sit on the axis.
  std::int32_t place(const ops::Axis& axis, std::int32_t rank) const;
  bool sits_on(const ops::Axis& axis, std::int32_t rank) const;
  // The ranks that share everything with `rank` but the place on the axis, in order of that place.
  std::vector<std::int32_t> group(const ops::Axis& axis, std::int32_t rank) const;
  // Axes on which the rank has others.
  std::vector<ops::Axis> axes(std::int32_t rank) const;
  // How far neighbours on the axis are apart.
  std::int32_t stride(const ops::Axis& axis, std::int32_t rank) const;

  // The ranks that share everything with `rank` but their places on the axes of their own that do so; ascending. Those that run the same
  // program; those that share out a step's samples; those that share out tensors.
  std::vector<std::int32_t> alike(std::int32_t rank) const;
  std::vector<std::int32_t> sharing(ops::Shares shares, std::int32_t rank) const;
  // Among the latter, how many there are and which of them the rank is.
  std::int32_t extent(ops::Shares shares, std::int32_t rank) const;
  std::int32_t place(ops::Shares shares, std::int32_t rank) const;

  // The axis over whose ranks what is in shards is shared out.
  ops::Axis shard_axis() const { return find(ops::Axis::data_inner) != nullptr ? ops::Axis::data_inner : ops::Axis::data; }
  // The place of the pipe axis that shares a weight with the first; 0: none does.
  std::int32_t tied_place() const;

  bool operator==(const Mesh&) const = default;

 private:
  std::int32_t pipe_place_of(std::int32_t rank) const;
  std::int32_t extent_of(std::size_t index, std::int32_t pipe_place) const;
  // Of the axis of its own at `index`: ranks that are inside one of its places.
  std::int32_t stride_of(std::size_t index, std::int32_t pipe_place) const;
  template <typename Wanted>
  std::vector<std::int32_t> spread(std::int32_t rank, const Wanted& wanted) const;

  std::vector<MeshAxis> table_;
  std::vector<std::int32_t> strides_;  // of an even mesh, as the table
  std::vector<std::vector<std::int32_t>> own_;
};

}  // namespace plimsoll::plan

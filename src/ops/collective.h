// What moves data between ranks and tiers, and the views of memory it needs.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (x_0, x_1, ..) -> (y_0, y_1, ..): one bucket of tensors, moved together over the ranks of an axis. all_reduce sums in
// the canonical order (a left fold by rank), in place; reduce_scatter and all_gather take and give flat tensors whose
// extents are multiples of `members`, in place if told: the smaller is then this rank's shard of the larger. With rows > 0 they
// take and give the rows of matrices instead: `rows` in all, dealt out like the units of a placement, those of `place` here.
// With first > 0 an all_reduce leaves the elements before `first` alone.
// reduce sums to the first rank, broadcast copies from it: together the form with one main device. all_to_all takes tensors whose first dim
// `members` divides: the p-th of as many equal parts goes to member p, and the p-th part of the result is what member p sent here. It is
// its own inverse, and so its own adjoint.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Axis axis = Axis::data;
  std::int64_t members = 1;
  std::int64_t tensors = 1;
  bool in_place = false;
  std::int64_t rows = 0;
  std::int64_t place = 0;
  std::int64_t first = 0;
  PLIMSOLL_OP("collective") {
    visit("kind", self.kind);
    visit("axis", self.axis);
    visit("members", self.members);
    visit("tensors", self.tensors);
    visit("in_place", self.in_place);
    visit("rows", self.rows);
    visit("place", self.place);
    visit("first", self.first);
  }
  bool operator==(const Collective&) const = default;
};

// (x) -> (), to another place of the pipe axis; or () -> x from there. `tag` tells messages between the same two places apart. What
// is sent has the message's shape and may be a stretch of x that begins with its element `first`. Where places of the pipe axis have
// tensor axes of their own, `seat` is the place on the other's.
struct Message {
  bool receive = false;
  std::int64_t peer = 0;
  std::int64_t tag = 0;
  base::DType dtype = base::DType::f32;
  base::Shape shape{1};
  std::int64_t first = 0;
  std::int64_t seat = 0;
  PLIMSOLL_OP("message") {
    visit("receive", self.receive);
    visit("peer", self.peer);
    visit("tag", self.tag);
    visit("dtype", self.dtype);
    visit("shape", self.shape);
    visit("first", self.first);
    visit("seat", self.seat);
  }
  bool operator==(const Message&) const = default;
};

// (x, [target]) -> x in another tier: in memory of its own, or (`into`) in that of a target there. Tiers are neighbours: what
// goes from the device to the disk goes through the host's memory.
struct Move {
  Tier from = Tier::device;
  Tier to = Tier::host;
  bool into = false;
  PLIMSOLL_OP("move") {
    visit("from", self.from);
    visit("to", self.to);
    visit("into", self.into);
  }
  bool operator==(const Move&) const = default;
};

// Rows of tables on disk, and the same rows of tensors in the host's memory, for tables that are too large to come whole. Bringing them,
// (ids (n), table_0 (R, C), table_1, ..) -> (rows_0 (n, C), rows_1, ..); with `back`,
// (ids (n), rows_0, rows_1, .., table_0, table_1, ..) -> (table_0, table_1, ..), in place. The first negative id ends the list: what is
// behind it is left as it was. Ids are all different.
struct MoveRows {
  std::int64_t tables = 1;
  bool back = false;
  PLIMSOLL_OP("move_rows") {
    visit("tables", self.tables);
    visit("back", self.back);
  }
  bool operator==(const MoveRows&) const = default;
};

// (x) -> the same memory with another shape. A larger one ends in padding, which is not written.
struct View {
  base::Shape shape{1};
  PLIMSOLL_OP("view") { visit("shape", self.shape); }
  bool operator==(const View&) const = default;
};

// (x) -> `count` elements of the same memory from element `first` on, as a flat tensor.
struct Slice {
  std::int64_t first = 0;
  std::int64_t count = 1;
  PLIMSOLL_OP("slice") {
    visit("first", self.first);
    visit("count", self.count);
  }
  bool operator==(const Slice&) const = default;
};

// (x (n)) -> this rank's part (n / members) of the same memory, by its place on data_inner.
struct OwnShard {
  std::int64_t members = 1;
  PLIMSOLL_OP("own_shard") { visit("members", self.members); }
  bool operator==(const OwnShard&) const = default;
};

// (x (n)) -> x with zeros from element `valid` on, in place.
struct Pad {
  std::int64_t valid = 0;
  PLIMSOLL_OP("pad") { visit("valid", self.valid); }
  bool operator==(const Pad&) const = default;
};

// (x) -> a copy that later micro-batches add to: accumulating, (x, sum) -> sum + x.
struct Accumulate {
  bool accumulate = false;
  PLIMSOLL_OP("accumulate") { visit("accumulate", self.accumulate); }
  bool operator==(const Accumulate&) const = default;
};

}  // namespace plimsoll::ops

// Which part of a whole tensor a rank holds: a slice along one dim (the tensor axis), of that slice, flattened, a tile where it is
// computed with in tiles, and of that, padded, one of equal shards (the data axis). Shards are multiples of kSumBlock elements, so that
// sums over a tensor do not depend on how it is split. A slice may end in a tail from further on that neighbours hold too: the key and
// value rows of a head whose queries several ranks share out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/shape.h"

namespace plimsoll::ops {

struct Part {
  base::Shape whole{};     // empty: nothing is shared, the tensor is whole
  int dim = -1;            // of the slice; -1: all of the tensor
  std::int64_t begin = 0;  // of the slice along dim
  base::Shape slice{};     // extents of the slice
  std::int64_t tail = 0;   // how much of the slice along dim is tail
  std::int64_t tail_begin = 0;
  std::int64_t first = 0;  // element of the slice with which the tile begins
  std::int64_t tile = 0;   // elements of the tile; 0: the slice is one
  std::int64_t shard = 0;  // elements of a shard; 0: every rank of the data axis holds the tile

  bool operator==(const Part&) const = default;
};

// The elements [begin, end) of the flattened slice that a rank holds.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
};

inline ElementRange held_by(const Part& part, std::int64_t data_coordinate) {
  const std::int64_t end = part.tile > 0 ? part.first + part.tile : part.slice.elements();
  if (part.shard == 0) return {part.first, end};
  return {std::min(end, part.first + data_coordinate * part.shard), std::min(end, part.first + (data_coordinate + 1) * part.shard)};
}

// Calls visit(first element in the whole tensor, first element in what is held, how many) for every stretch that lies
// together in both, in order.
template <typename Visit>
void for_each_run(const Part& part, std::int64_t data_coordinate, const Visit& visit) {
  const ElementRange range = held_by(part, data_coordinate);
  if (part.dim < 0) {
    if (range.count() > 0) visit(range.begin, std::int64_t{0}, range.count());
    return;
  }
  std::int64_t inner = 1;
  for (int dim = part.dim + 1; dim < part.whole.rank(); ++dim) inner *= part.whole[dim];
  const std::int64_t row = part.slice[part.dim] * inner;
  const std::int64_t own = row - part.tail * inner;
  const std::int64_t whole_row = part.whole[part.dim] * inner;
  for (std::int64_t at = range.begin; at < range.end;) {
    const bool in_tail = at % row >= own;
    const std::int64_t begin = in_tail ? part.tail_begin * inner - own : part.begin * inner;
    const std::int64_t count = std::min(range.end - at, (in_tail ? row : own) - at % row);
    visit(at / row * whole_row + begin + at % row, at - range.begin, count);
    at += count;
  }
}

// Whether the stretch that starts at this element of the whole tensor is of the tail.
inline bool is_tail(const Part& part, std::int64_t first) {
  if (part.tail == 0) return false;
  std::int64_t inner = 1;
  for (int dim = part.dim + 1; dim < part.whole.rank(); ++dim) inner *= part.whole[dim];
  const std::int64_t along = first / inner % part.whole[part.dim];
  return along >= part.tail_begin && along < part.tail_begin + part.tail;
}

}  // namespace plimsoll::ops

// Which part of a whole tensor a rank holds: a slice along one dim (the tensor axis), and of that slice, flattened and
// padded, one of equal shards (the data axis). Shards are multiples of kSumBlock elements, so that sums over a tensor do
// not depend on how it is split.
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
  std::int64_t shard = 0;  // elements of a shard; 0: every rank of the data axis holds the slice

  bool operator==(const Part&) const = default;
};

// The elements [begin, end) of the flattened slice that a rank holds.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
};

inline ElementRange held_by(const Part& part, std::int64_t data_coordinate) {
  const std::int64_t elements = part.slice.elements();
  if (part.shard == 0) return {0, elements};
  return {std::min(elements, data_coordinate * part.shard), std::min(elements, (data_coordinate + 1) * part.shard)};
}

}  // namespace plimsoll::ops

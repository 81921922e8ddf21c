// Sums, casts, and columns that tiles of a weight take and put together.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (a, b) -> a + b.
struct Add {
  PLIMSOLL_OP("add") {}
  bool operator==(const Add&) const = default;
};

// (x) -> x in another element type.
struct Cast {
  base::DType dtype = base::DType::f32;
  PLIMSOLL_OP("cast") { visit("dtype", self.dtype); }
  bool operator==(const Cast&) const = default;
};

// (x (.., N)) -> its columns [first, first + count): what a tile of a weight's rows takes of a gradient.
struct TakeColumns {
  std::int64_t first = 0;
  std::int64_t count = 1;
  PLIMSOLL_OP("take_columns") {
    visit("first", self.first);
    visit("count", self.count);
  }
  bool operator==(const TakeColumns&) const = default;
};

// (x (.., n), [y (.., columns)]) -> y with x in its columns from `first` on: what tiles made, put together one by one. The first of them
// has no y yet (`into` is false), and the other columns of its result hold nothing.
struct PutColumns {
  std::int64_t first = 0;
  std::int64_t columns = 1;
  bool into = false;
  PLIMSOLL_OP("put_columns") {
    visit("first", self.first);
    visit("columns", self.columns);
    visit("into", self.into);
  }
  bool operator==(const PutColumns&) const = default;
};

}  // namespace plimsoll::ops

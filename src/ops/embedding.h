// Operators on tables of rows that ids look up.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (ids_0, table_0, ids_1, table_1, ...) -> sum of the looked-up rows (B, T, C).
// An id of kElsewhere adds nothing: its row is in another rank's part of the table.
struct Embed {
  std::int64_t tables = 1;
  std::int64_t padding = -1;  // an id of the first table that its gradient passes over; -1: none
  PLIMSOLL_OP("embed") {
    visit("tables", self.tables);
    visit("padding", self.padding);
  }
  bool operator==(const Embed&) const = default;
};

// (ids) i32 -> where they are in the part [first, first + rows) of a table or vocabulary: less `first`, or kElsewhere;
// negative ones stay.
struct ShiftIds {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t hidden = -1;  // an id that counts as elsewhere; -1: none
  PLIMSOLL_OP("shift_ids") {
    visit("first", self.first);
    visit("rows", self.rows);
    visit("hidden", self.hidden);
  }
  bool operator==(const ShiftIds&) const = default;
};

// (ids, dy) -> dtable (rows, C). Ids of kElsewhere are passed over.
struct EmbedGrad {
  std::int64_t rows = 0;
  base::DType dtype = base::DType::f32;
  bool accumulate = false;
  PLIMSOLL_OP("embed_grad") {
    visit("rows", self.rows);
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const EmbedGrad&) const = default;
};

}  // namespace plimsoll::ops

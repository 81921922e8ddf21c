// Dropout, residual sums with it, and what takes them back.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (x (B, ..), samples (B), scalars) -> x * kept / (1 - rate). Element e of sample n is kept by word e%4 of
// philox({e/4, samples[n], step, e/4 >> 32}, random_key(seed, site)) >= rate * 2^32. Its own adjoint.
// Where ranks share out the rows of a micro-batch, x (rows here, C) starts at row `first_row` of all, and a sample has `sample_rows`
// rows (0: x is whole); so it is in Residual and Norm.
struct Dropout {
  double rate = 0.0;
  std::uint64_t site = 0;
  std::int64_t first_row = 0;
  std::int64_t sample_rows = 0;
  PLIMSOLL_OP("dropout") {
    visit("rate", self.rate);
    visit("site", self.site);
    visit("first_row", self.first_row);
    visit("sample_rows", self.sample_rows);
  }
  bool operator==(const Dropout&) const = default;
};

// (x, r) -> x + r; with rate > 0 (x, r, samples, scalars) -> x + dropout(r).
struct Residual {
  double rate = 0.0;
  std::uint64_t site = 0;
  std::int64_t first_row = 0;
  std::int64_t sample_rows = 0;
  PLIMSOLL_OP("residual") {
    visit("rate", self.rate);
    visit("site", self.site);
    visit("first_row", self.first_row);
    visit("sample_rows", self.sample_rows);
  }
  bool operator==(const Residual&) const = default;
};

// (y, r) -> y - r; with rate > 0 (y, r, samples, scalars) -> y - dropout(r): what the same residual added r to.
struct Subtract {
  double rate = 0.0;
  std::uint64_t site = 0;
  std::int64_t first_row = 0;
  std::int64_t sample_rows = 0;
  PLIMSOLL_OP("subtract") {
    visit("rate", self.rate);
    visit("site", self.site);
    visit("first_row", self.first_row);
    visit("sample_rows", self.sample_rows);
  }
  bool operator==(const Subtract&) const = default;
};

}  // namespace plimsoll::ops

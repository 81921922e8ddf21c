// Static addresses for things with known lifetimes: a pure function from lifetimes to offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::lowering {

struct Lifetime {
  base::Bytes bytes;
  std::int32_t first = 0;  // inclusive
  std::int32_t last = 0;   // inclusive
};

struct Layout {
  std::vector<base::Bytes> offsets;  // one per lifetime, in the order given
  base::Bytes total;                 // end of the highest
  base::Bytes peak;                  // most bytes alive at once: no layout is smaller
};

// Two lifetimes that share a moment never share a byte. Offsets are multiples of the alignment; sizes are rounded up to
// it. Deterministic. Tries several orders of placement and keeps the smallest result.
Layout assign_offsets(const std::vector<Lifetime>& lifetimes, base::Bytes alignment);

}  // namespace plimsoll::lowering

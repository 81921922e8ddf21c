// Static addresses for things with known lifetimes: a pure function from lifetimes to offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "plan/plan.h"

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

// The same in the arena of a tier, behind what is kept for ever; `total` is then the end of the arena. Where there is a drive (`drives`),
// larger buffers in the host's memory start at pages: what comes from a drive or goes to one then needs no copy on the way.
Layout lay_out(const std::vector<Lifetime>& lifetimes, plan::Tier tier, base::Bytes persistent, bool drives);

}  // namespace plimsoll::lowering

// Rotary positions.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (packed, positions (B, T) i32, table (context, D) f32: D/2 cosines then D/2 sines) -> packed with query and key
// heads rotated, dims d and d + D/2 as a pair. inverse rotates back: the adjoint.
struct Rope {
  Heads heads;
  bool inverse = false;
  PLIMSOLL_OP("rope") {
    visit("heads", self.heads);
    visit("inverse", self.inverse);
  }
  bool operator==(const Rope&) const = default;
};

}  // namespace plimsoll::ops

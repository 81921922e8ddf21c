// Operators that remember: what they know from earlier micro-batches is a state (state.h) that they read and write in place.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (x (.., C), mean (C) f32) -> (1 - momentum) mean + momentum (the mean of x over its rows); in place.
struct RunningMean {
  double momentum = 0.1;
  PLIMSOLL_OP("running_mean") { visit("momentum", self.momentum); }
  bool operator==(const RunningMean&) const = default;
};

// (x, error f32 of x's shape) -> (z = x + error in f32 rounded to dtype, z - rounded z in place of the error; zero where that is not
// finite). What rounding loses comes with the next x. The gradient goes through as if nothing had been rounded.
struct RoundWithError {
  base::DType dtype = base::DType::bf16;
  PLIMSOLL_OP("round_with_error") { visit("dtype", self.dtype); }
  bool operator==(const RoundWithError&) const = default;
};

}  // namespace plimsoll::ops

// Operators on the block of step scalars (step_scalars.h): each (scalars, ...) -> scalars, in place.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (scalars) : forgets the last step's sums and verdict.
struct BeginStep {
  PLIMSOLL_OP("begin_step") {}
  bool operator==(const BeginStep&) const = default;
};

// (scalars, losses (n) f32) : adds the losses to scalars.loss, by kSumBlock blocks.
struct SumLoss {
  PLIMSOLL_OP("sum_loss") {}
  bool operator==(const SumLoss&) const = default;
};

// (scalars, gradient) : adds the squares to scalars.squared_norm, by kSumBlock blocks. counted >= 0: of the whole gradient only the
// first `counted` elements count here, the others are another rank's to count; where the gradient is a shard of `shard` elements,
// it begins at element (place on data_inner) * shard.
struct SquaredNorm {
  std::int64_t counted = -1;
  std::int64_t shard = 0;
  PLIMSOLL_OP("squared_norm") {
    visit("counted", self.counted);
    visit("shard", self.shard);
  }
  bool operator==(const SquaredNorm&) const = default;
};

// (scalars) : norm, verdict and multiplier, when the last gradient is complete; clip 0 = off. Without check_finite a non-finite
// gradient is applied as it is, as without loss scaling in other systems.
struct PrepareUpdate {
  double clip = 0.0;
  bool check_finite = false;
  PLIMSOLL_OP("prepare_update") {
    visit("clip", self.clip);
    visit("check_finite", self.check_finite);
  }
  bool operator==(const PrepareUpdate&) const = default;
};

// (scalars) : counts the update; with dynamic loss scaling halves the scale after `hysteresis` overflows (not under
// minimum) and doubles it after `window` good steps.
struct FinishStep {
  bool dynamic = false;
  std::int64_t window = 1000;
  std::int64_t hysteresis = 2;
  double minimum = 1.0;
  PLIMSOLL_OP("finish_step") {
    visit("dynamic", self.dynamic);
    visit("window", self.window);
    visit("hysteresis", self.hysteresis);
    visit("minimum", self.minimum);
  }
  bool operator==(const FinishStep&) const = default;
};

// (scalars, count (1) i32) : where a micro-batch has more than `bound` rows (graph/live_rows.h), notes how many. Nothing is updated in such
// a step, on any rank.
struct CheckRows {
  std::int64_t bound = 0;
  PLIMSOLL_OP("check_rows") { visit("bound", self.bound); }
  bool operator==(const CheckRows&) const = default;
};

// () -> scalars of a step that has not begun: a second block for sums.
struct FreshScalars {
  PLIMSOLL_OP("fresh_scalars") {}
  bool operator==(const FreshScalars&) const = default;
};

// (scalars, everybody's scalars (members * bytes)) -> scalars: the losses, and with `norm` the squares, of all together. With
// `add` the squares of all are added to those of the first operand instead, and its losses stay.
struct MergeScalars {
  std::int64_t members = 1;
  bool norm = false;
  bool add = false;
  PLIMSOLL_OP("merge_scalars") {
    visit("members", self.members);
    visit("norm", self.norm);
    visit("add", self.add);
  }
  bool operator==(const MergeScalars&) const = default;
};

}  // namespace plimsoll::ops

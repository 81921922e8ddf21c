// What codecs are made of beside casts, stored forms and collectives: sums of what others sent, and feedback of what a codec lost.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (scalars, x, error f32) -> x + loss scale * error in f32. Errors are kept unscaled, since the scale changes. x may end in padding, for
// which there is no error.
struct AddError {
  PLIMSOLL_OP("add_error") {}
  bool operator==(const AddError&) const = default;
};

// (scalars, z f32, y f32, error f32) -> (z - y) / loss scale in place of the error; zero where that is not finite. z and y, what the others
// were sent of it, may end in padding.
struct KeepError {
  PLIMSOLL_OP("keep_error") {}
  bool operator==(const KeepError&) const = default;
};

// (scalars, state, before) -> the state in place, or `before` where the step is skipped.
struct UndoSkipped {
  PLIMSOLL_OP("undo_skipped") {}
  bool operator==(const UndoSkipped&) const = default;
};

// (x (members * n)) -> the sum (n) of its `members` equal parts: a left fold in their order in f32, rounded once.
struct SumParts {
  std::int64_t members = 1;
  base::DType dtype = base::DType::f32;
  PLIMSOLL_OP("sum_parts") {
    visit("members", self.members);
    visit("dtype", self.dtype);
  }
  bool operator==(const SumParts&) const = default;
};

}  // namespace plimsoll::ops

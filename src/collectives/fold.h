// The canonical sum (mean, maximum) over members: element by element a left fold in the order of `in`, in f32 for f32, bf16
// and f16, rounded once at the end. All CPU transports reduce through this one function, so they agree bit for bit.
#pragma once

#include <span>

#include "base/dtype.h"
#include "collectives/call.h"

namespace plimsoll::collectives {

struct Fold {
  std::span<const std::byte* const> in;  // one for each member, in order
  std::span<std::byte* const> out;       // each gets the result; one may be one of `in`
  std::int64_t count = 0;                // elements
  base::DType dtype = base::DType::f32;  // f32, bf16, f16, i32, i64, u8
  Reduction reduction = Reduction::sum;
  int members = 0;  // divisor of a mean: all members, when `in` holds only some
};

void fold(const Fold& work) noexcept;

}  // namespace plimsoll::collectives

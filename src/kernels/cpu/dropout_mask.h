// The multipliers of dropout, 0 or 1 / (1 - rate), as ops::Dropout defines them: a pure function of where an element
// stands, so forward and backward, and every way to split the work, see the same mask.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu {

struct DropoutMask {
  base::RandomKey key{};
  std::uint32_t step = 0;
  std::uint32_t threshold = 0;  // words below it drop their element
  float scale = 1.0f;
};

DropoutMask dropout_mask(double rate, std::uint64_t site, const ops::StepScalars& scalars);

// The multipliers of elements [first, first + count) of a sample.
void dropout_multipliers(const DropoutMask& mask, std::uint32_t sample, std::uint64_t first, std::int64_t count, float* multipliers);

// sum = x + r * multipliers, or x + r where there are none (null). sum may be x.
void add_residual(const float* x, const float* r, const float* multipliers, float* sum, std::int64_t count);

}  // namespace plimsoll::kernels::cpu

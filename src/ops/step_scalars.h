// The one block of numbers that change from step to step. Kernels read (and a few write) it through an operand, so a
// program stays the same from step to step and a device needs no word from the host in the middle of one.
#pragma once

#include <array>
#include <cstdint>

#include "base/exact_sum.h"
#include "base/shape.h"

namespace plimsoll::ops {

struct StepScalars {
  // Written by the host before a program starts.
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  float learning_rate = 0.0f;
  float inverse_tokens = 1.0f;  // 1 / valid targets of the global batch: the loss divisor

  // State that outlives a step (part of a checkpoint).
  float loss_scale = 1.0f;
  std::int64_t updates = 0;     // applied updates: Adam's t; a skipped step does not count
  std::int32_t good_steps = 0;  // applied updates since the loss scale last changed
  std::int32_t hysteresis = 0;  // overflows still tolerated before the loss scale falls

  // Written by the program.
  float gradient_norm = 0.0f;        // of the unscaled gradient, before clipping
  float gradient_multiplier = 1.0f;  // what updates multiply gradients with: clip factor / loss scale
  std::int32_t skip = 0;             // 1: the gradient is not finite, updates must not write
  std::int32_t rows_wanted = 0;      // where it is not 0: by the largest batch that has more rows than there is room for
  base::ExactSum squared_norm;
  base::ExactSum loss;  // sum over valid targets
};

inline base::TensorType step_scalars_type() { return {base::DType::u8, base::Shape{static_cast<std::int64_t>(sizeof(StepScalars))}}; }

// Sums over a parameter that its update wants (prelude.h), as its rule numbers them.
struct ParameterSums {
  std::array<base::ExactSum, 2> sum;

  bool operator==(const ParameterSums&) const = default;
};

inline base::TensorType parameter_sums_type() { return {base::DType::u8, base::Shape{static_cast<std::int64_t>(sizeof(ParameterSums))}}; }

// Sums over a tensor are made of blocks of this many elements, each summed in f32 and added exactly; shards are
// aligned to it, so a norm or a loss does not depend on how a tensor is split.
inline constexpr std::int64_t kSumBlock = 1024;

}  // namespace plimsoll::ops

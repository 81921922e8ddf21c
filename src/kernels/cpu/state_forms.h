// The forms bf16 and split (ops/forms) for many elements at a time, to the same bits. Operands are f32 blocks that stay in the first-level
// cache and the stored halves.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace plimsoll::kernels::cpu {

// Which of an element's random bits.
enum class RoundedState : std::uint8_t { weight, first, second };

// One word for each element, of which narrow_at_random takes bits. `first` null: there is no average.
void draw_rounding(base::RandomKey key, const float* gradient, const float* weight, const float* first, std::uint32_t* words,
                   std::int64_t count);

void narrow_at_random(const float* values, const std::uint32_t* words, RoundedState state, std::uint16_t* to, std::int64_t count);

// From the halves to f32. v loses the signs that belong to them.
void join_halves(const std::uint16_t* high, const std::uint16_t* low, float* v, float* weight, std::int64_t count);
// And back. v, which has no signs, gets them.
void split_halves(const float* weight, std::uint16_t* high, std::uint16_t* low, float* v, std::int64_t count);

}  // namespace plimsoll::kernels::cpu

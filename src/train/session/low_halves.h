// The lower halves of split weights (ops/forms/split.h) outside of updates: written where weights get their first numbers, read where they
// are wanted in f32.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "train/session/buffers.h"

namespace plimsoll::train {

// The buffers of one weight, or of a tile of it, that have what its own does not: of the same part.
struct LowBuffers {
  std::string low;
  std::string v;
};

// From element `first` of them on. Averages keep their values.
void put_low_halves(const Buffers& buffers, const LowBuffers& to, std::int64_t first, std::span<const float> values);

// The numbers of which `weights` are the upper halves, in their place; `low` are codes.
void join_low_halves(std::span<float> weights, std::span<const float> low, std::span<const float> v);

}  // namespace plimsoll::train

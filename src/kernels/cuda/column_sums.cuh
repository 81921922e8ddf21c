// Sums over rows in two stages, with the same bits in every run: blocks leave partial sums in the workspace, then each column adds up
// its partial sums in their order. How many there are depends on the shape alone, not on the device.
#pragma once

#include <cstdint>

#include "kernels/cuda/pieces.cuh"

namespace plimsoll::kernels::cuda {

// Blocks that leave partial sums: two for each multiprocessor of a large GPU.
inline constexpr std::int64_t kSumBlocks = 264;

struct PartSums {
  const float* partials = nullptr;  // (parts, totals, stride)
  std::int64_t parts = 0;
  std::int64_t stride = 0;
  std::int64_t width = 0;
  int totals = 1;  // one or two sums side by side
  Span total[2];
  Span present[2];  // null: nothing is there yet
};

// total = (present or 0) + the partial sums.
void launch_part_sums(const PartSums& sums, cudaStream_t stream);

// Partial sums of a row start on sectors of their own.
inline std::int64_t padded_row(std::int64_t width) { return (width + 7) / 8 * 8; }

}  // namespace plimsoll::kernels::cuda

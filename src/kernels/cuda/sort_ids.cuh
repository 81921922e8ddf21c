// A stable sort of token positions by id, for sums over the tokens of an id in a fixed order. Its scratch is known without a device,
// as plans are made where there is none.
//
// Radix sort from the lowest digit: each pass counts the digits of every tile of kSortTile tokens, makes the counts into first places,
// and moves the tokens. Ranks within a tile come from matching lanes and from counts of the warps before, never from the order in
// which threads arrive.
#pragma once

#include <cstdint>

#include "kernels/cuda/workspace.h"

#include <cuda_runtime.h>

namespace plimsoll::kernels::cuda {

inline constexpr int kSortTile = 1024;

struct SortScratch {
  SortScratch(Workspace& workspace, std::int64_t tokens, std::int64_t rows);

  std::uint32_t* keys[2];
  std::int32_t* positions[2];
  std::uint32_t* counts;
};

struct SortedIds {
  const std::uint32_t* keys;      // in order; `rows` for ids that are not in the table
  const std::int32_t* positions;  // whose they are
};

SortedIds sort_ids(const SortScratch& scratch, const std::int32_t* ids, std::int64_t tokens, std::int64_t rows, cudaStream_t stream);

}  // namespace plimsoll::kernels::cuda

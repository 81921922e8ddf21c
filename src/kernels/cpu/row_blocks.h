// Sums over rows that come out the same for every thread count: rows are cut in blocks by the row count alone, each
// block is summed in row order into its own partial sums, and the blocks are added in block order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/parallel.h"

namespace plimsoll::kernels::cpu {

struct RowBlocks {
  std::int64_t rows = 0;
  std::int64_t size = 1;
  std::int64_t count = 0;

  std::int64_t first(std::int64_t block) const { return block * size; }
  std::int64_t end(std::int64_t block) const { return std::min(rows, (block + 1) * size); }
};

// At most 64 blocks, which bounds the scratch, of at least 16 rows, which bounds the work of adding them up.
inline RowBlocks row_blocks(std::int64_t rows) {
  const std::int64_t size = std::max<std::int64_t>(16, (rows + 63) / 64);
  return {.rows = rows, .size = size, .count = (rows + size - 1) / size};
}

// Partial sums start on cache lines, so that threads do not write to the same one.
inline std::int64_t padded_row(std::int64_t width) { return (width + 15) / 16 * 16; }

// total = present (null: 0) + the partial sums of all blocks, which lie `stride` apart.
inline void finish_row_sums(const Tensor& total, const Tensor* present, const float* partials, std::int64_t stride, std::int64_t blocks,
                            int threads) {
  parallel_ranges(threads, total.type.shape.elements(), 4 * kBlock, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t first = begin; first < end; first += kBlock) {
      const std::int64_t count = std::min(kBlock, end - first);
      alignas(64) float buffer[kBlock];
      const float* before = present == nullptr ? nullptr : read_f32(*present, first, count, buffer);
      float* sums = target_f32(total, first, buffer);
      sum_parts(partials + first, blocks, stride, before, sums, count);
      finish_f32(total, first, count, sums);
    }
  });
}

}  // namespace plimsoll::kernels::cpu

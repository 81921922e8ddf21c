// How packed_gemm cuts its problem up: sizes, the layout of its scratch, the share of each thread. The same on every
// instruction set.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/packed_gemm.h"

namespace plimsoll::kernels::cpu {

// The depth of a pass makes a tile long enough to hide what surrounds it; a group of slivers of B stays in a
// second-level cache while the rows of the block go by; a block is what all threads share.
inline constexpr std::int64_t kPassDepth = 768;
inline constexpr std::int64_t kGroupSlivers = 4;
inline constexpr std::int64_t kBlockRows = 1280;
// The widest tile of any instruction set, which the workspace allows for.
inline constexpr std::int64_t kMaxTileRows = 14;
inline constexpr std::int64_t kMaxTileColumns = 32;

inline std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
inline std::int64_t round_up(std::int64_t value, std::int64_t to) { return divide_up(value, to) * to; }

struct Passes {
  std::int64_t count;
  std::int64_t depth;  // the most of any pass

  explicit Passes(std::int64_t k) : count(std::max<std::int64_t>(1, divide_up(k, kPassDepth))), depth(divide_up(k, count)) {}
};

// Where the parts of the workspace begin, in bytes.
struct WorkspaceLayout {
  std::int64_t group = 0;  // packed B, one for each thread
  std::int64_t group_floats = 0;
  std::int64_t block = 0;  // packed A
  std::int64_t bias = 0;   // as f32
  std::int64_t sums = 0;   // f32 (m, n) between passes, where c itself cannot hold it
  std::int64_t bytes = 0;

  WorkspaceLayout(const GemmSize& size, std::int64_t threads) {
    const Passes passes(size.k);
    const auto take = [this](std::int64_t floats) {
      const std::int64_t offset = bytes;
      bytes += round_up(floats * static_cast<std::int64_t>(sizeof(float)), 64);
      return offset;
    };
    group_floats = passes.depth * std::min(round_up(size.n, kMaxTileColumns), kGroupSlivers * kMaxTileColumns);
    group = take(group_floats * threads);
    block = take(passes.depth * std::min(size.m, kBlockRows) + kMaxTileColumns);
    bias = take(size.n);
    sums = take(passes.count > 1 && size.c_dtype != base::DType::f32 ? size.m * size.n : 0);
  }
};

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// Part `index` of `count` nearly equal parts of [0, size).
inline Range part_of(std::int64_t size, std::int64_t index, std::int64_t count) {
  return {size * index / count, size * (index + 1) / count};
}
inline Range part_in(Range whole, std::int64_t index, std::int64_t count) {
  const Range part = part_of(whole.end - whole.begin, index, count);
  return {whole.begin + part.begin, whole.begin + part.end};
}

// How threads share the tiles of a block of rows: a grid of row parts by column parts, chosen for the least load and
// then for the most column parts, since threads of one column part pack the same columns.
struct ThreadGrid {
  std::int64_t rows = 1;
  std::int64_t columns = 1;

  ThreadGrid(std::int64_t row_slivers, std::int64_t column_slivers, std::int64_t threads) {
    std::int64_t least = row_slivers * column_slivers;
    for (std::int64_t r = 1; r <= std::min(threads, row_slivers); ++r) {
      const std::int64_t c = std::min(threads / r, column_slivers);
      const std::int64_t load = divide_up(row_slivers, r) * divide_up(column_slivers, c);
      if (load < least) {
        least = load;
        rows = r;
        columns = c;
      }
    }
  }
};

}  // namespace plimsoll::kernels::cpu

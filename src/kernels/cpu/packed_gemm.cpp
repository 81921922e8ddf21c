#include "kernels/cpu/packed_gemm.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/packed_gemm.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

#ifndef PLIMSOLL_KERNELS_CPU_PACKED_GEMM_ONCE
#define PLIMSOLL_KERNELS_CPU_PACKED_GEMM_ONCE
namespace plimsoll::kernels::cpu {

#ifndef KC
#define KC 768
#endif
#ifndef GS
#define GS 4
#endif
// The depth of a pass makes a tile long enough to hide what surrounds it; a group of B slivers stays in a second-level
// cache while the rows of the block go by; a block is what all threads share.
inline constexpr std::int64_t kPassDepth = KC;
inline constexpr std::int64_t kGroupSlivers = GS;
inline constexpr std::int64_t kBlockRows = 1022;
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
  std::int64_t group = 0;   // packed B, one for each thread
  std::int64_t group_bytes = 0;
  std::int64_t block = 0;   // packed A
  std::int64_t bias = 0;    // as f32
  std::int64_t sums = 0;    // f32 (m, n) between passes, where c itself cannot hold it
  std::int64_t bytes = 0;

  WorkspaceLayout(const GemmSize& size, std::int64_t threads) {
    const Passes passes(size.k);
    const auto take = [this](std::int64_t floats) {
      const std::int64_t offset = bytes;
      bytes += round_up(floats * static_cast<std::int64_t>(sizeof(float)), 64);
      return offset;
    };
    const std::int64_t group_floats = passes.depth * std::min(round_up(size.n, kMaxTileColumns), kGroupSlivers * kMaxTileColumns);
    group_bytes = group_floats * static_cast<std::int64_t>(sizeof(float));
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
#endif

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;
using F32Vec = hn::Vec<F32>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));
constexpr int kTileVectors = 2;
constexpr std::int64_t kTileColumns = kTileVectors * kLanes;
// As many rows as there are registers for: 32 with AVX-512, else 16.
constexpr int kTileRows = kLanes == 16 ? 14 : 6;
static_assert(kTileRows <= kMaxTileRows && kTileColumns <= kMaxTileColumns);

// ---- packing: a sliver of `width` lines holds element (p, line) at dst[p * width + line]; slivers follow each other

// What to pack: `lines` lines of `depth` elements, line i element p at src[i * line_stride + p * depth_stride].
template <typename T>
struct Lines {
  const T* src;
  std::int64_t line_stride;
  std::int64_t depth_stride;
  std::int64_t lines;   // that exist from src on; slivers may be read up to here
  std::int64_t depth;
};

// Writes the first `width` lanes of value to dst. Vectors wider than a sliver are stored whole over the next row's
// place, which is filled later; only in the last row they must not touch what lies behind the sliver.
HWY_INLINE void store_sliver_row(F32Vec value, std::int64_t width, bool last, float* dst) {
  const F32 d;
  if (last && width < kLanes) return store_n(d, value, dst, static_cast<std::size_t>(width));
  hn::StoreU(value, d, dst);
}

// Any sliver, element by element; lines that do not exist are 0.
template <typename T>
void pack_plainly(const Lines<T>& from, std::int64_t line, std::int64_t width, float* dst) {
  const std::int64_t count = std::min(width, from.lines - line);
  const T* const src = from.src + line * from.line_stride;
  for (std::int64_t p = 0; p < from.depth; ++p, dst += width) {
    for (std::int64_t r = 0; r < count; ++r) dst[r] = to_f32(src[r * from.line_stride + p * from.depth_stride]);
    for (std::int64_t r = count; r < width; ++r) dst[r] = 0.0f;
  }
}

// Lines next to each other in memory (line_stride 1): rows of slivers are copied, a few rows of every sliver at a
// time, so that memory is read in long runs.
template <typename T, std::int64_t kWidth>
void pack_by_copy(const Lines<T>& from, Range slivers, float* dst) {
  const F32 d;
  constexpr std::int64_t kRowsAtATime = 8;
  for (std::int64_t p = 0; p < from.depth; p += kRowsAtATime) {
    const std::int64_t past = std::min(from.depth, p + kRowsAtATime);
    for (std::int64_t sliver = slivers.begin; sliver < slivers.end; ++sliver) {
      float* to = dst + (sliver * from.depth + p) * kWidth;
      const T* src = from.src + sliver * kWidth + p * from.depth_stride;
      for (std::int64_t row = p; row < past; ++row, to += kWidth, src += from.depth_stride) {
        for (std::int64_t r = 0; r < kWidth; r += kLanes) {
          store_sliver_row(load(d, src + r), kWidth - r, row + 1 == from.depth, to + r);
        }
      }
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// A vector whose 128-bit block b holds four elements of line 4 b.
template <typename T, class D>
HWY_INLINE RawVec<D, T> load_blocks(D d, const T* src, std::int64_t stride) {
  const hn::Rebind<Raw<T>, D> dr;
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(dr, reinterpret_cast<const Raw<T>*>(src));
  } else {
    const hn::Half<D> half;
    const std::int64_t lower_lines = static_cast<std::int64_t>(hn::MaxLanes(half));
    return hn::Combine(dr, load_blocks<T>(half, src + lower_lines * stride, stride), load_blocks<T>(half, src, stride));
  }
}

// Four elements each of kLanes lines -> four rows of a sliver: a 4 x 4 transposition in every block.
template <typename T>
HWY_INLINE void transpose_lines(const T* src, std::int64_t stride, F32Vec out[4]) {
  const F32 d;
  const hn::Repartition<double, F32> dd;
  const F32Vec v0 = widen<T>(d, load_blocks<T>(d, src, stride));
  const F32Vec v1 = widen<T>(d, load_blocks<T>(d, src + stride, stride));
  const F32Vec v2 = widen<T>(d, load_blocks<T>(d, src + 2 * stride, stride));
  const F32Vec v3 = widen<T>(d, load_blocks<T>(d, src + 3 * stride, stride));
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, v0, v1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, v2, v3));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, v0, v1));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, v2, v3));
  out[0] = hn::BitCast(d, hn::InterleaveLower(dd, low01, low23));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23));
  out[2] = hn::BitCast(d, hn::InterleaveLower(dd, high01, high23));
  out[3] = hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23));
}

// Lines far apart, each contiguous (depth_stride 1). The lines of the next vector are fetched meanwhile: there are too
// many short runs for the hardware to foresee.
template <typename T, std::int64_t kWidth>
void pack_by_transposing(const Lines<T>& from, std::int64_t line, float* dst) {
  constexpr std::int64_t kLineElements = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t r = 0; r < kWidth; r += kLanes) {
    const T* const src = from.src + (line + r) * from.line_stride;
    std::int64_t p = 0;
    for (; p + 4 <= from.depth; p += 4) {
      if (p % kLineElements == 0) {
        for (std::int64_t i = 0; i < kLanes; ++i) __builtin_prefetch(src + (kLanes + i) * from.line_stride + p);
      }
      F32Vec rows[4];
      transpose_lines(src + p, from.line_stride, rows);
      for (int i = 0; i < 4; ++i) store_sliver_row(rows[i], kWidth - r, p + i + 1 == from.depth, dst + (p + i) * kWidth + r);
    }
    for (; p < from.depth; ++p) {
      for (std::int64_t i = 0; i < std::min(kLanes, kWidth - r); ++i) dst[p * kWidth + r + i] = to_f32(src[i * from.line_stride + p]);
    }
  }
}
#endif

// Packs the given slivers; a short last one is padded to full width, or with kPad false keeps its own.
template <std::int64_t kWidth, bool kPad, typename T>
void pack(const Lines<T>& from, Range slivers, float* dst) {
  // Slivers that can be read in whole vectors; what is left is at most two.
  constexpr std::int64_t kReach = (kWidth + kLanes - 1) / kLanes * kLanes;
  const std::int64_t whole = from.lines < kReach ? 0 : (from.lines - kReach) / kWidth + 1;
  std::int64_t sliver = slivers.begin;
  if (from.line_stride == 1) {
    const std::int64_t end = std::clamp(whole, slivers.begin, slivers.end);
    pack_by_copy<T, kWidth>(from, {slivers.begin, end}, dst);
    sliver = end;
  }
#if HWY_TARGET != HWY_SCALAR
  if (from.depth_stride == 1 && from.line_stride != 1) {
    for (; sliver < std::min(whole, slivers.end); ++sliver) {
      pack_by_transposing<T, kWidth>(from, sliver * kWidth, dst + sliver * kWidth * from.depth);
    }
  }
#endif
  for (; sliver < slivers.end; ++sliver) {
    const std::int64_t width = kPad ? kWidth : std::min(kWidth, from.lines - sliver * kWidth);
    pack_plainly(from, sliver * kWidth, width, dst + sliver * kWidth * from.depth);
  }
}

// ---- the tile

template <int kRows>
void compute_tile(std::int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT tile) {
  const F32 d;
  F32Vec sums[kRows][kTileVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (std::int64_t p = 0; p < depth; ++p, a += kRows, b += kTileColumns) {
    F32Vec row[kTileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) row[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32Vec left = hn::Set(d, a[r]);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) sums[r][v] = hn::MulAdd(left, row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) hn::Store(sums[r][v], d, tile + r * kTileColumns + v * kLanes);
  }
}

using ComputeTile = void (*)(std::int64_t, const float*, const float*, float*);

template <int... kRowsLessOne>
constexpr std::array<ComputeTile, sizeof...(kRowsLessOne)> tile_functions(std::integer_sequence<int, kRowsLessOne...>) {
  return {compute_tile<kRowsLessOne + 1>...};
}
constexpr auto kComputeTile = tile_functions(std::make_integer_sequence<int, kTileRows>());

// What becomes of a tile: out = tile + [sums] + [out] + [bias], activated = activation(out).
struct Finish {
  const float* sums = nullptr;
  std::int64_t sums_stride = 0;
  void* out = nullptr;
  std::int64_t out_stride = 0;
  bool add_out = false;
  const float* bias = nullptr;
  void* activated = nullptr;
};
using FinishTile = void (*)(const Finish&, const float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);

template <typename T, ops::ActivationKind kind>
void finish_tile(const Finish& to, const float* tile, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
  const F32 d;
  const bool has_sums = to.sums != nullptr;
  for (std::int64_t r = 0; r < rows; ++r, tile += kTileColumns) {
    T* const out = static_cast<T*>(to.out) + (row + r) * to.out_stride + column;
    [[maybe_unused]] T* const activated = static_cast<T*>(to.activated) + (row + r) * to.out_stride + column;
    const float* const sums = has_sums ? to.sums + (row + r) * to.sums_stride + column : nullptr;
    const float* const bias = to.bias ? to.bias + column : nullptr;
    std::int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
      F32Vec value = hn::Load(d, tile + j);
      if (sums) value = hn::Add(value, load(d, sums + j));
      if (to.add_out) value = hn::Add(value, load(d, out + j));
      if (bias) value = hn::Add(value, load(d, bias + j));
      store(d, value, out + j);
      if constexpr (kind != ops::ActivationKind::none) store(d, activation<kind>(d, value), activated + j);
    }
    if (j == columns) continue;
    const std::size_t rest = static_cast<std::size_t>(columns - j);
    F32Vec value = hn::Load(d, tile + j);
    if (sums) value = hn::Add(value, load_n(d, sums + j, rest));
    if (to.add_out) value = hn::Add(value, load_n(d, out + j, rest));
    if (bias) value = hn::Add(value, load_n(d, bias + j, rest));
    store_n(d, value, out + j, rest);
    if constexpr (kind != ops::ActivationKind::none) store_n(d, activation<kind>(d, value), activated + j, rest);
  }
}

// ---- the multiplication

// Fetches a part of B from memory while other work goes on, a few cache lines at every step.
class Prefetch {
 public:
  Prefetch(const MatrixView& b, Range depth, Range columns) {
    const std::int64_t element = base::size_of(b.dtype);
    const Range runs = b.transposed ? columns : depth;
    const Range within = b.transposed ? depth : columns;
    runs_ = within.begin < within.end ? runs.end - runs.begin : 0;
    run_bytes_ = (within.end - within.begin) * element;
    stride_bytes_ = b.stride * element;
    at_ = static_cast<const char*>(b.data) + runs.begin * stride_bytes_ + within.begin * element;
  }

  void spread_over(std::int64_t steps) { lines_ = divide_up(runs_ * divide_up(run_bytes_, 64), steps); }

  HWY_INLINE void step() {
    for (std::int64_t i = 0; i < lines_ && runs_ > 0; ++i) {
      __builtin_prefetch(at_ + done_, 0, 2);
      done_ += 64;
      if (done_ < run_bytes_) continue;
      done_ = 0;
      at_ += stride_bytes_;
      --runs_;
    }
  }

 private:
  const char* at_ = nullptr;
  std::int64_t runs_ = 0;
  std::int64_t run_bytes_ = 0;
  std::int64_t stride_bytes_ = 0;
  std::int64_t lines_ = 0;
  std::int64_t done_ = 0;
};

class Multiplication {
 public:
  Multiplication(const PackedGemm& gemm, std::byte* workspace, int threads)
      : gemm_(gemm), layout_({gemm.m, gemm.n, gemm.k, gemm.c_dtype}, threads), passes_(gemm.k) {
    group_ = reinterpret_cast<float*>(workspace + layout_.group);
    block_ = reinterpret_cast<float*>(workspace + layout_.block);
    sums_ = reinterpret_cast<float*>(workspace + layout_.sums);
    if (gemm.bias) bias_ = widened_bias(reinterpret_cast<float*>(workspace + layout_.bias));
    with_element(gemm.c_dtype, [&](auto zero) {
      with_activation(gemm.activation, [&](auto kind) { finish_last_ = finish_tile<decltype(zero), kind.value>; });
    });
  }

  // Every thread of the team runs this.
  void run(std::int64_t thread, std::int64_t threads) const {
    for (std::int64_t pass = 0; pass < passes_.count; ++pass) {
      const Range depth = part_of(gemm_.k, pass, passes_.count);
      for (std::int64_t row = 0; row < gemm_.m; row += kBlockRows) {
        const Range rows{row, std::min(gemm_.m, row + kBlockRows)};
        const Range mine = part_of(divide_up(rows.end - rows.begin, kTileRows), thread, threads);
        pack_operand<kTileRows, false>(gemm_.a, gemm_.a.transposed, rows, depth, mine, block_);
#pragma omp barrier
        compute(pass, rows, depth, thread, threads);
#pragma omp barrier
      }
    }
  }

 private:
  const float* widened_bias(float* space) const {
    if (gemm_.bias_dtype == base::DType::f32) return static_cast<const float*>(gemm_.bias);
    with_element(gemm_.bias_dtype, [&](auto zero) {
      const auto* bias = static_cast<const decltype(zero)*>(gemm_.bias);
      for (std::int64_t j = 0; j < gemm_.n; ++j) space[j] = to_f32(bias[j]);
    });
    return space;
  }

  // Slivers over `lines` (rows of A, columns of B), counted from its beginning.
  template <std::int64_t kWidth, bool kPad>
  static void pack_operand(const MatrixView& from, bool lines_adjacent, Range lines, Range depth, Range slivers, float* dst) {
    const std::int64_t line_stride = lines_adjacent ? 1 : from.stride;
    const std::int64_t depth_stride = lines_adjacent ? from.stride : 1;
    with_element(from.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T* const src = static_cast<const T*>(from.data) + lines.begin * line_stride + depth.begin * depth_stride;
      pack<kWidth, kPad>(Lines<T>{src, line_stride, depth_stride, lines.end - lines.begin, depth.end - depth.begin}, slivers, dst);
    });
  }

  // The tiles of this thread, a group of columns after the other.
  void compute(std::int64_t pass, Range rows, Range depth, std::int64_t thread, std::int64_t threads) const {
    const std::int64_t row_slivers = divide_up(rows.end - rows.begin, kTileRows);
    const std::int64_t column_slivers = divide_up(gemm_.n, kTileColumns);
    const ThreadGrid grid(row_slivers, column_slivers, threads);
    if (thread >= grid.rows * grid.columns) return;
    const Range my_rows = part_of(row_slivers, thread / grid.columns, grid.rows);
    const Range my_columns = part_of(column_slivers, thread % grid.columns, grid.columns);
    const std::int64_t groups = divide_up(my_columns.end - my_columns.begin, kGroupSlivers);
    float* const group = group_ + thread * layout_.group_bytes / static_cast<std::int64_t>(sizeof(float));
    for (std::int64_t g = 0; g < groups; ++g) {
      const Range slivers = part_in(my_columns, g, groups);
      const Range columns{slivers.begin * kTileColumns, std::min(gemm_.n, slivers.end * kTileColumns)};
      pack_operand<kTileColumns, true>(gemm_.b, !gemm_.b.transposed, columns, depth, {0, slivers.end - slivers.begin}, group);
      const Range next = g + 1 < groups ? part_in(my_columns, g + 1, groups) : Range{0, 0};
      Prefetch ahead(gemm_.b, depth, {next.begin * kTileColumns, std::min(gemm_.n, next.end * kTileColumns)});
      ahead.spread_over((my_rows.end - my_rows.begin) * (slivers.end - slivers.begin));
      compute_group(pass, rows, my_rows, columns, depth.end - depth.begin, group, ahead);
    }
  }

  void compute_group(std::int64_t pass, Range rows, Range slivers, Range columns, std::int64_t depth, const float* group,
                     Prefetch& ahead) const {
    const bool last = pass + 1 == passes_.count;
    const Finish finish = finish_for(pass, last);
    const FinishTile finish_function = last ? finish_last_ : finish_tile<float, ops::ActivationKind::none>;
    const std::int64_t out_size = last ? base::size_of(gemm_.c_dtype) : static_cast<std::int64_t>(sizeof(float));
    HWY_ALIGN float tile[kTileRows * kTileColumns];
    for (std::int64_t r = slivers.begin; r < slivers.end; ++r) {
      const std::int64_t row = rows.begin + r * kTileRows;
      const std::int64_t height = std::min<std::int64_t>(kTileRows, rows.end - row);
      for (std::int64_t column = columns.begin; column < columns.end; column += kTileColumns) {
        prefetch_tile(finish, out_size, row, height, column);
        ahead.step();
        kComputeTile[height - 1](depth, block_ + r * kTileRows * depth, group + (column - columns.begin) * depth, tile);
        finish_function(finish, tile, row, height, column, std::min(kTileColumns, columns.end - column));
      }
    }
  }

  // A tile of C lies in as many pages as it has rows: fetched while the tile is computed, else each row is a miss.
  static HWY_INLINE void prefetch_tile(const Finish& finish, std::int64_t out_size, std::int64_t row, std::int64_t rows, std::int64_t column) {
    const char* at = static_cast<const char*>(finish.out) + (row * finish.out_stride + column) * out_size;
    for (std::int64_t i = 0; i < rows; ++i, at += finish.out_stride * out_size) {
      for (std::int64_t byte = 0; byte < kTileColumns * out_size; byte += 64) __builtin_prefetch(at + byte, 1);
    }
  }

  // f32 results keep the sums between passes themselves; others have room for them in the workspace.
  Finish finish_for(std::int64_t pass, bool last) const {
    Finish to;
    const bool sums_in_c = gemm_.c_dtype == base::DType::f32;
    if (sums_in_c || last) {
      to.out = gemm_.c;
      to.out_stride = gemm_.c_stride;
      to.add_out = gemm_.accumulate || (sums_in_c && pass > 0);
    } else {
      to.out = sums_;
      to.out_stride = gemm_.n;
      to.add_out = pass > 0;
    }
    if (last && !sums_in_c && pass > 0) {
      to.sums = sums_;
      to.sums_stride = gemm_.n;
    }
    if (last) {
      to.bias = bias_;
      to.activated = gemm_.activated;
    }
    return to;
  }

  const PackedGemm& gemm_;
  WorkspaceLayout layout_;
  Passes passes_;
  float* group_ = nullptr;
  float* block_ = nullptr;
  float* sums_ = nullptr;
  const float* bias_ = nullptr;
  FinishTile finish_last_ = nullptr;
};

}  // namespace

void multiply(const PackedGemm& gemm, std::byte* workspace, int threads) {
  const Multiplication multiplication(gemm, workspace, threads);
#pragma omp parallel num_threads(threads)
  multiplication.run(omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(multiply);

std::int64_t packed_gemm_workspace(const GemmSize& size, int threads) { return WorkspaceLayout(size, threads).bytes; }

void packed_gemm(const PackedGemm& gemm, std::byte* workspace, int threads) {
  if (gemm.m == 0 || gemm.n == 0) return;
  HWY_DYNAMIC_DISPATCH(multiply)(gemm, workspace, threads);
}

}  // namespace plimsoll::kernels::cpu
#endif

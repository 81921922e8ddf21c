// The tile of packed_gemm: a piece of C held in registers while a sliver of A meets a sliver of B, and what becomes of it
// afterwards. Included once per instruction set.
#if defined(PLIMSOLL_KERNELS_CPU_GEMM_TILE_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLIMSOLL_KERNELS_CPU_GEMM_TILE_H
#undef PLIMSOLL_KERNELS_CPU_GEMM_TILE_H
#else
#define PLIMSOLL_KERNELS_CPU_GEMM_TILE_H
#endif

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/cpu/gemm_blocking.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {
namespace {

constexpr int kTileVectors = 2;
constexpr std::int64_t kTileColumns = kTileVectors * kLanes;
// As many rows as there are registers for: 32 with AVX-512, else 16.
constexpr int kTileRows = kLanes == 16 ? 14 : 6;
static_assert(kTileRows <= kMaxTileRows && kTileColumns <= kMaxTileColumns);

// A part of an operand in memory, as runs of bytes at a stride, and a cursor that fetches it a cache line at a time.
class Ahead {
 public:
  Ahead() = default;
  // To be fetched during the next `tiles` tiles.
  Ahead(const MatrixView& from, Range rows, Range columns, std::int64_t tiles) {
    const std::int64_t element = base::size_of(from.dtype);
    const Range outer = from.transposed ? columns : rows;
    const Range inner = from.transposed ? rows : columns;
    runs_ = outer.end - outer.begin;
    run_bytes_ = (inner.end - inner.begin) * element;
    stride_ = from.stride * element;
    at_ = static_cast<const char*>(from.data) + outer.begin * stride_ + inner.begin * element;
    lines_a_tile_ = divide_up(runs_ * divide_up(run_bytes_, 64), tiles);
  }

  void begin_tile() { lines_ = runs_ > 0 ? lines_a_tile_ : 0; }

  HWY_INLINE void step() {
    if (lines_ == 0) return;
    --lines_;
    __builtin_prefetch(at_ + done_);
    done_ += 64;
    if (done_ < run_bytes_) return;
    done_ = 0;
    at_ += stride_;
    if (--runs_ == 0) lines_ = 0;
  }

 private:
  const char* at_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t runs_ = 0;
  std::int64_t run_bytes_ = 0;
  std::int64_t done_ = 0;  // bytes of the present run
  std::int64_t lines_a_tile_ = 0;
  std::int64_t lines_ = 0;  // still to fetch during this tile
};

// Brings nearer what is needed next while tiles are computed, few lines at every step: first the place of the tile in C,
// whose rows lie in as many pages, then what will be packed. In a burst they would stall the tile instead.
struct Fetch {
  Ahead a;
  Ahead b;
  const char* row = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t row_bytes = 0;
  std::int64_t rows = 0;

  void begin_tile(const void* c, std::int64_t stride, std::int64_t count, std::int64_t bytes) {
    row = static_cast<const char*>(c);
    row_stride = stride;
    row_bytes = bytes;
    rows = count;
    a.begin_tile();
    b.begin_tile();
  }

  HWY_INLINE void step() {
    if (rows > 0) {
      for (std::int64_t byte = 0; byte < row_bytes; byte += 64) __builtin_prefetch(row + byte, 1);
      row += row_stride;
      --rows;
      return;
    }
    b.step();
    a.step();
  }
};

// Where a tile goes: straight into f32 memory, set or added, or into `tile` for finish_tile.
struct TileTarget {
  float* tile = nullptr;
  float* direct = nullptr;  // (optional)
  std::int64_t stride = 0;
  bool add = false;
};

template <int kRows>
struct TileSums {
  F32Vec sums[kRows][kTileVectors];

  HWY_INLINE TileSums() {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) sums[r][v] = hn::Zero(F32());
    }
  }

  HWY_INLINE void add(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b) {
    const F32 d;
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

  template <bool kAdd>
  HWY_INLINE void store(float* HWY_RESTRICT dst, std::int64_t stride) const {
    const F32 d;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r, dst += stride) {
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) {
        float* const at = dst + v * kLanes;
        hn::StoreU(kAdd ? hn::Add(sums[r][v], hn::LoadU(d, at)) : sums[r][v], d, at);
      }
    }
  }
};

template <int kRows>
void compute_tile(std::int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const TileTarget& to, Fetch& fetch) {
  TileSums<kRows> sums;
  std::int64_t p = 0;
  for (; p + 4 <= depth; p += 4, a += 4 * kRows, b += 4 * kTileColumns) {
    fetch.step();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums.add(a + i * kRows, b + i * kTileColumns);
  }
  for (; p < depth; ++p, a += kRows, b += kTileColumns) sums.add(a, b);
  if (to.direct == nullptr) return sums.template store<false>(to.tile, kTileColumns);
  if (to.add) return sums.template store<true>(to.direct, to.stride);
  sums.template store<false>(to.direct, to.stride);
}

using ComputeTile = void (*)(std::int64_t, const float*, const float*, const TileTarget&, Fetch&);

template <int... kRowsLessOne>
constexpr std::array<ComputeTile, sizeof...(kRowsLessOne)> tile_functions(std::integer_sequence<int, kRowsLessOne...>) {
  return {compute_tile<kRowsLessOne + 1>...};
}
constexpr auto kComputeTile = tile_functions(std::make_integer_sequence<int, kTileRows>());

// What becomes of a tile: out = tile + [sums] + [out] + [bias], activated = activation(out) - of what was stored, rounding
// included, so that it can be made again from there.
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
    [[maybe_unused]] T* const activated = to.activated ? static_cast<T*>(to.activated) + (row + r) * to.out_stride + column : nullptr;
    const float* const sums = has_sums ? to.sums + (row + r) * to.sums_stride + column : nullptr;
    const float* const bias = to.bias ? to.bias + column : nullptr;
    std::int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
      F32Vec value = hn::Load(d, tile + j);
      if (sums) value = hn::Add(value, load(d, sums + j));
      if (to.add_out) value = hn::Add(value, load(d, out + j));
      if (bias) value = hn::Add(value, load(d, bias + j));
      store(d, value, out + j);
      if constexpr (kind != ops::ActivationKind::none) store(d, activation<kind>(d, load(d, out + j)), activated + j);
    }
    if (j == columns) continue;
    const std::size_t rest = static_cast<std::size_t>(columns - j);
    F32Vec value = hn::Load(d, tile + j);
    if (sums) value = hn::Add(value, load_n(d, sums + j, rest));
    if (to.add_out) value = hn::Add(value, load_n(d, out + j, rest));
    if (bias) value = hn::Add(value, load_n(d, bias + j, rest));
    store_n(d, value, out + j, rest);
    if constexpr (kind != ops::ActivationKind::none) store_n(d, activation<kind>(d, load_n(d, out + j, rest)), activated + j, rest);
  }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// The products of attention on tiles, as register blocks: kBlockRows x kVecs vectors of sums stay in registers while the
// inner dim runs. Included once per instruction set, hence the guard.
//
// Blocks know the band: rows or columns that no pair of the block needs are not computed, so a tile on the diagonal
// costs about half.
#if defined(PLIMSOLL_KERNELS_CPU_ATTENTION_PRODUCT_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLIMSOLL_KERNELS_CPU_ATTENTION_PRODUCT_H
#undef PLIMSOLL_KERNELS_CPU_ATTENTION_PRODUCT_H
#else
#define PLIMSOLL_KERNELS_CPU_ATTENTION_PRODUCT_H
#endif

#include <algorithm>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using attention::Band;
using attention::kTileQueries;
using attention::Rows;
using attention::TilePair;

inline constexpr int kBlockRows = 4;  // divides kPad
// Sums, one row of operands and a broadcast fit in 32 registers, or in 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int kBlockVecs = 4;
#else
inline constexpr int kBlockVecs = 3;
#endif

struct IndexRange {
  int begin = 0;
  int end = 0;
};

// The queries that see one of the keys [first, first + kBlockRows).
HWY_INLINE IndexRange queries_of_block(const Band& band, int first, int queries) {
  return {std::max(0, first + band.low), std::min(queries, first + kBlockRows - 1 + band.high)};
}

// The keys that one of the queries [first, first + count) sees.
HWY_INLINE IndexRange keys_of_block(const Band& band, int first, int count, int keys) {
  return {std::max(0, first - band.high + 1), std::min(keys, first + count - band.low)};
}

// A block's left operand: number (row, k) lies at data[row * row_stride + k * k_stride].
struct Broadcast {
  const float* data;
  std::int64_t row_stride;
  std::int64_t k_stride;
};

// dst (kBlockRows, kVecs vectors) = or += left (kBlockRows, inner) x right (inner, kVecs vectors).
template <int kVecs, bool kAdd>
HWY_INLINE void product_block(Broadcast left, Rows right, std::int64_t inner, Rows dst) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[kBlockRows][kVecs];
  for (int r = 0; r < kBlockRows; ++r) {
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(d);
  }
  const float* a = left.data;
  const float* b = right.data;
  for (std::int64_t k = 0; k < inner; ++k, a += left.k_stride, b += right.stride) {
    V operand[kVecs];
    for (int v = 0; v < kVecs; ++v) operand[v] = hn::Load(d, b + v * lanes);
    for (int r = 0; r < kBlockRows; ++r) {
      const V factor = hn::Set(d, a[r * left.row_stride]);
      for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(factor, operand[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kBlockRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      float* at = dst.data + r * dst.stride + v * lanes;
      hn::Store(kAdd ? hn::Add(hn::Load(d, at), sums[r][v]) : sums[r][v], d, at);
    }
  }
}

// The same for `columns` columns, a multiple of the vector length.
template <bool kAdd>
HWY_INLINE void product_strip(Broadcast left, Rows right, std::int64_t inner, std::int64_t columns, Rows dst) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  std::int64_t vecs = columns / lanes;
  while (vecs > 0) {
    const std::int64_t taken = std::min<std::int64_t>(vecs, kBlockVecs);
    switch (taken) {
      case 1: product_block<1, kAdd>(left, right, inner, dst); break;
      case 2: product_block<2, kAdd>(left, right, inner, dst); break;
      case 3: product_block<3, kAdd>(left, right, inner, dst); break;
      default: product_block<kBlockVecs, kAdd>(left, right, inner, dst); break;
    }
    right.data += taken * lanes;
    dst.data += taken * lanes;
    vecs -= taken;
  }
}

inline void score_product(const TilePair& pair, Rows rows, const float* transposed, std::int64_t dim, float* grid) {
  const int lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
  for (int j = 0; j < pair.keys; j += kBlockRows) {
    const IndexRange seen = queries_of_block(pair.band, j, pair.queries);
    const int begin = seen.begin / lanes * lanes;
    const int columns = (seen.end - begin + lanes - 1) / lanes * lanes;
    if (seen.end <= seen.begin) continue;
    const Broadcast left{rows.data + j * rows.stride, rows.stride, 1};
    const Rows right{const_cast<float*>(transposed) + begin, kTileQueries};
    product_strip<false>(left, right, dim, columns, {grid + j * kTileQueries + begin, kTileQueries});
  }
}

inline void query_product(const TilePair& pair, const float* grid, Rows rows, std::int64_t dim, Rows sum) {
  for (int i = 0; i < pair.queries; i += kBlockRows) {
    const IndexRange seen = keys_of_block(pair.band, i, kBlockRows, pair.keys);
    if (seen.end <= seen.begin) continue;
    const Broadcast left{grid + seen.begin * kTileQueries + i, 1, kTileQueries};
    product_strip<true>(left, rows.from(seen.begin), seen.end - seen.begin, attention::padded(dim), sum.from(i));
  }
}

inline void key_product(const TilePair& pair, const float* grid, Rows rows, std::int64_t dim, Rows sum) {
  for (int j = 0; j < pair.keys; j += kBlockRows) {
    const IndexRange seen = queries_of_block(pair.band, j, pair.queries);
    if (seen.end <= seen.begin) continue;
    const Broadcast left{grid + j * kTileQueries + seen.begin, kTileQueries, 1};
    product_strip<true>(left, rows.from(seen.begin), seen.end - seen.begin, attention::padded(dim), sum.from(j));
  }
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// Packing for packed_gemm: operands of any element type and either order become f32 slivers, as wide as a tile and in
// the order a tile reads them. Included once per instruction set.
#if defined(PLIMSOLL_KERNELS_CPU_GEMM_PACK_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLIMSOLL_KERNELS_CPU_GEMM_PACK_H
#undef PLIMSOLL_KERNELS_CPU_GEMM_PACK_H
#else
#define PLIMSOLL_KERNELS_CPU_GEMM_PACK_H
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/gemm_blocking.h"
#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;
using F32Vec = hn::Vec<F32>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));

// A sliver of `width` lines holds element (p, line) at dst[p * width + line]; slivers follow each other.

// What to pack: `lines` lines of `depth` elements, line i element p at src[i * line_stride + p * depth_stride].
template <typename T>
struct Lines {
  const T* src;
  std::int64_t line_stride;
  std::int64_t depth_stride;
  std::int64_t lines;  // that exist from src on; slivers may be read up to here
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

}  // namespace
}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

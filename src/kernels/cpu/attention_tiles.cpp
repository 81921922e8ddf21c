// Moving rows in and out of scratch, and the table of tile operations of each instruction set.
#include "kernels/cpu/attention_tiles.h"

#include "kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tiles.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention_product.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using attention::padded;
using attention::TensorRows;

template <typename T>
HWY_INLINE void load_row(const T* src, std::int64_t dim, float* dst) {
  const FloatTag d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + lanes <= dim; c += lanes) hn::Store(load(d, src + c), d, dst + c);
  if (c < dim) {
    hn::Store(load_n(d, src + c, static_cast<std::size_t>(dim - c)), d, dst + c);
    c += lanes;
  }
  for (; c < padded(dim); c += lanes) hn::Store(hn::Zero(d), d, dst + c);
}

template <typename T>
void load_rows_of(TensorRows src, int count, std::int64_t dim, Rows dst) {
  for (int r = 0; r < count; ++r) load_row(static_cast<const T*>(src.data) + r * src.stride, dim, dst.data + r * dst.stride);
}

inline void load_rows(TensorRows src, int count, int padded_count, std::int64_t dim, Rows dst) {
  switch (src.dtype) {
    case base::DType::bf16: load_rows_of<Bf16>(src, count, dim, dst); break;
    case base::DType::f16: load_rows_of<F16>(src, count, dim, dst); break;
    default: load_rows_of<float>(src, count, dim, dst); break;
  }
  for (int r = count; r < padded_count; ++r) std::fill_n(dst.data + r * dst.stride, padded(dim), 0.0f);
}

// dst (4 rows, kTileQueries apart) = scale * the four columns from src, of four rows.
HWY_INLINE void transpose_square(const float* src, std::int64_t stride, float scale, float* dst) {
#if HWY_TARGET == HWY_SCALAR
  for (int c = 0; c < 4; ++c) {
    for (int r = 0; r < 4; ++r) dst[c * kTileQueries + r] = scale * src[r * stride + c];
  }
#else
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> dd;
  const auto factor = hn::Set(d, scale);
  const auto r0 = hn::Load(d, src);
  const auto r1 = hn::Load(d, src + stride);
  const auto r2 = hn::Load(d, src + 2 * stride);
  const auto r3 = hn::Load(d, src + 3 * stride);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  hn::Store(hn::Mul(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), factor), d, dst);
  hn::Store(hn::Mul(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), factor), d, dst + kTileQueries);
  hn::Store(hn::Mul(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), factor), d, dst + 2 * kTileQueries);
  hn::Store(hn::Mul(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), factor), d, dst + 3 * kTileQueries);
#endif
}

// The padding of src and dst makes both sides multiples of four.
inline void transpose_rows(Rows src, int queries, std::int64_t dim, float scale, float* dst) {
  for (int i = 0; i < queries; i += 4) {
    for (std::int64_t c = 0; c < padded(dim); c += 4) {
      transpose_square(src.data + i * src.stride + c, src.stride, scale, dst + c * kTileQueries + i);
    }
  }
}

template <typename T>
void store_rows_of(Rows src, int count, std::int64_t dim, float scale, const float* row_scale, TensorRows dst) {
  const FloatTag d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (int r = 0; r < count; ++r) {
    const auto factor = hn::Set(d, row_scale != nullptr ? scale * row_scale[r] : scale);
    const float* from = src.data + r * src.stride;
    T* to = static_cast<T*>(dst.data) + r * dst.stride;
    std::int64_t c = 0;
    for (; c + lanes <= dim; c += lanes) store(d, hn::Mul(hn::Load(d, from + c), factor), to + c);
    if (c < dim) store_n(d, hn::Mul(hn::Load(d, from + c), factor), to + c, static_cast<std::size_t>(dim - c));
  }
}

inline void store_rows(Rows src, int count, std::int64_t dim, float scale, const float* row_scale, TensorRows dst) {
  switch (dst.dtype) {
    case base::DType::bf16: return store_rows_of<Bf16>(src, count, dim, scale, row_scale, dst);
    case base::DType::f16: return store_rows_of<F16>(src, count, dim, scale, row_scale, dst);
    default: return store_rows_of<float>(src, count, dim, scale, row_scale, dst);
  }
}

inline void row_dots(Rows a, Rows b, int count, std::int64_t dim, float* dst) {
  const FloatTag d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (int r = 0; r < count; ++r) {
    auto sum = hn::Zero(d);
    for (std::int64_t c = 0; c < padded(dim); c += lanes) {
      sum = hn::MulAdd(hn::Load(d, a.data + r * a.stride + c), hn::Load(d, b.data + r * b.stride + c), sum);
    }
    dst[r] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

const attention::TileOps& ops_of_target() {
  static constexpr attention::TileOps kOps{load_rows,   transpose_rows, store_rows, row_dots,     score_product, query_product,
                                           key_product, softmax,        rescale,    softmax_grad, draw_keep};
  return kOps;
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {
HWY_EXPORT(ops_of_target);
}

namespace plimsoll::kernels::cpu::attention {
const TileOps& tile_ops() { return HWY_DYNAMIC_DISPATCH(ops_of_target)(); }
}  // namespace plimsoll::kernels::cpu::attention
#endif

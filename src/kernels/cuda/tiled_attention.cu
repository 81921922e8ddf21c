// Attention for every mask and element type, heads of up to 128: what neither cuDNN nor tensor cores take (f32, odd heads). A block makes
// 64 rows of a result and walks over the other side in tiles; products are plain f32 arithmetic on tiles in shared
// memory, four rows by four columns a thread. Every sum has one order.
//
// Thread (y, x) of 16 x 16 has rows 4y .. 4y + 3. Where both sides of a product are read along a head's elements, tiles lie transposed, so
// that a thread's four neighbours are one load; what a product's weights multiply lies as it is.
#include <algorithm>

#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/table.h"

namespace plimsoll::kernels::cuda {

namespace {

using Problem = AttentionProblem;

constexpr int kRows = kTileRows;
constexpr int kThreads = 256;
constexpr int kSide = 16;  // of the threads' square
constexpr int kPad = 4;    // keeps loads of four aligned, and neighbours apart

// Sizes by the head's: larger ones have shorter tiles, so that all fit.
template <int kDim>
struct Form {
  static constexpr int kLoop = kDim == 64 ? 64 : 32;  // of the other side, at once
  static constexpr int kColumns = kLoop / kSide;      // of scores, a thread's
  static constexpr int kWide = kDim / kSide;          // of a result, a thread's: in groups of four, 64 apart
  static constexpr int kRowStride = kRows + kPad;     // of transposed rows, and of weights
  static constexpr int kLoopStride = kLoop + kPad;    // of the transposed other side
  static constexpr int kDimStride = kDim + kPad;      // of what lies as it is
  static constexpr int kRowTile = kDim * kRowStride;  // floats
  static constexpr int kLoopTile = kDim * kLoopStride;
  static constexpr int kPlainTile = kLoop * kDimStride;
  static constexpr int kWeightTile = kLoop * kRowStride;
  static constexpr int kForward = kRowTile + kLoopTile + kPlainTile + kWeightTile;
  static constexpr int kBackwardQuery = 2 * kRowTile + 2 * kLoopTile + kPlainTile + kWeightTile;
  static constexpr int kBackwardKey = 2 * (kRowTile + kLoopTile + kPlainTile + kWeightTile);
};

constexpr int bytes_of(int floats) { return floats * static_cast<int>(sizeof(float)); }

template <typename T>
__device__ __forceinline__ float4 load_four(const T* from, int left, bool aligned) {
  if (aligned && left >= 4) {
    if constexpr (sizeof(T) == 4) {
      return *reinterpret_cast<const float4*>(from);
    } else {
      const uint2 raw = *reinterpret_cast<const uint2*>(from);
      T four[4];
      memcpy(four, &raw, sizeof raw);
      return {to_f32(four[0]), to_f32(four[1]), to_f32(four[2]), to_f32(four[3])};
    }
  }
  const auto at = [&](int n) { return n < left ? to_f32(from[n]) : 0.0f; };
  return {at(0), at(1), at(2), at(3)};
}

// Rows of heads from memory, `count` of kCount; the others are zeros. Transposed: (kDim, kCount + kPad); plain: (kCount, kDim + kPad).
template <int kDim, int kCount, bool kTransposed, bool kPlain, typename T>
__device__ __forceinline__ void load_tile(const T* from, std::int64_t stride, std::int64_t count, int dim, float* transposed,
                                          float* plain) {
  constexpr int kParts = kThreads / kCount;  // threads to a row
  constexpr int kEach = kDim / kParts;
  const int n = static_cast<int>(threadIdx.x) % kCount;
  const int first = static_cast<int>(threadIdx.x) / kCount * kEach;
#pragma unroll
  for (int e = 0; e < kEach; e += 4) {
    const int d = first + e;
    const float4 four = n < count ? load_four(from + n * stride + d, dim - d, dim % 4 == 0) : float4{0.0f, 0.0f, 0.0f, 0.0f};
    if constexpr (kTransposed) {
      float* to = transposed + d * (kCount + kPad) + n;
      to[0] = four.x;
      to[kCount + kPad] = four.y;
      to[2 * (kCount + kPad)] = four.z;
      to[3 * (kCount + kPad)] = four.w;
    }
    if constexpr (kPlain) *reinterpret_cast<float4*>(plain + n * (kDim + kPad) + d) = four;
  }
}

template <int kCount>
__device__ __forceinline__ void read(const float* from, float (&to)[kCount]) {
  if constexpr (kCount == 2) {
    const float2 two = *reinterpret_cast<const float2*>(from);
    to[0] = two.x;
    to[1] = two.y;
  } else {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  }
}

// What a thread's place is, and the products of tiles.
template <int kDim>
struct Place {
  using F = Form<kDim>;
  int y = static_cast<int>(threadIdx.x) / kSide;
  int x = static_cast<int>(threadIdx.x) % kSide;

  // Scores: over the elements of heads.
  __device__ __forceinline__ void multiply(const float* rows, const float* loop, float (&s)[4][F::kColumns]) const {
#pragma unroll
    for (auto& row : s)
      for (float& value : row) value = 0.0f;
#pragma unroll 8
    for (int d = 0; d < kDim; ++d) {
      float a[4];
      float b[F::kColumns];
      read(rows + d * F::kRowStride + 4 * y, a);
      read(loop + d * F::kLoopStride + F::kColumns * x, b);
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < F::kColumns; ++c) s[r][c] = fmaf(a[r], b[c], s[r][c]);
    }
  }
  // Results: over the other side.
  __device__ __forceinline__ void add_products(const float* weights, const float* plain, float (&out)[4][F::kWide]) const {
#pragma unroll 8
    for (int n = 0; n < F::kLoop; ++n) {
      float a[4];
      read(weights + n * F::kRowStride + 4 * y, a);
#pragma unroll
      for (int group = 0; group < kDim / 64; ++group) {
        float b[4];
        read(plain + n * F::kDimStride + 64 * group + 4 * x, b);
#pragma unroll
        for (int r = 0; r < 4; ++r)
#pragma unroll
          for (int c = 0; c < 4; ++c) out[r][4 * group + c] = fmaf(a[r], b[c], out[r][4 * group + c]);
      }
    }
  }
  __device__ __forceinline__ void store_weights(const float (&w)[4][F::kColumns], float* weights) const {
#pragma unroll
    for (int c = 0; c < F::kColumns; ++c)
      *reinterpret_cast<float4*>(weights + (F::kColumns * x + c) * F::kRowStride + 4 * y) = {w[0][c], w[1][c], w[2][c], w[3][c]};
  }
  template <typename T>
  __device__ __forceinline__ void store_row(const float (&out)[F::kWide], float factor, int dim, T* to) const {
#pragma unroll
    for (int group = 0; group < kDim / 64; ++group)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int d = 64 * group + 4 * x + c;
        if (d < dim) to[d] = from_f32<T>(out[4 * group + c] * factor);
      }
  }
};

// Over the sixteen threads that have the same rows.
__device__ __forceinline__ float row_sum(float value) {
#pragma unroll
  for (int apart = kSide / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(~0u, value, apart);
  return value;
}
__device__ __forceinline__ float row_largest(float value) {
#pragma unroll
  for (int apart = kSide / 2; apart > 0; apart /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, apart));
  return value;
}

// Of kCount keys side by side from j on, of which 4 or the whole is a multiple: their words are made together where elements allow it.
template <int kCount>
__device__ __forceinline__ void multipliers(const Problem& p, const DropoutKey& key, std::int64_t b, std::int64_t h, std::int64_t i,
                                            std::int64_t j, float (&to)[kCount]) {
  if (p.dropout.samples == nullptr) {
#pragma unroll
    for (float& value : to) value = 1.0f;
  } else if (p.length % 4 == 0) {
    const std::uint64_t element = p.element(h, i, j);
    const base::RandomBlock words = dropout_words(key, static_cast<std::uint32_t>(p.dropout.samples[b]), element / 4);
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      const std::uint32_t word = kCount == 2 && element % 4 != 0 ? words[(2 + c) % 4] : words[c];
      to[c] = word < p.dropout.threshold ? 0.0f : p.dropout.scale;
    }
  } else {
#pragma unroll
    for (int c = 0; c < kCount; ++c) to[c] = p.multiplier(key, b, h, i, j + c);
  }
}

__device__ __forceinline__ DropoutKey key_of(const Problem& p) {
  return p.dropout.samples != nullptr ? dropout_key(p.dropout) : DropoutKey{};
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads) forward(Problem p, const T* packed, T* out, float* lse) {
  using F = Form<kDim>;
  extern __shared__ __align__(16) float shared[];
  float* queries = shared;
  float* keys = queries + F::kRowTile;
  float* values = keys + F::kLoopTile;
  float* weights = values + F::kPlainTile;
  const Place<kDim> place;
  const std::int64_t first = first_row();
  const std::int64_t h = blockIdx.y;
  const std::int64_t b = blockIdx.z;
  const auto dim = static_cast<int>(p.heads.dim);
  const std::int64_t width = p.heads.packed_width;
  const T* sample = packed + b * p.length * width;
  const T* key_rows = sample + p.heads.key_at(h / p.heads.per_group);
  load_tile<kDim, kRows, true, false>(sample + first * width + p.heads.query_at(h), width, p.length - first, dim, queries, nullptr);
  const DropoutKey key = key_of(p);
  float sums[4][F::kWide] = {};
  float top[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  float total[4] = {};
  const Reach reach = keys_of(p, first, F::kLoop);
  for (std::int64_t j0 = reach.begin; j0 < reach.end; j0 += F::kLoop) {
    if (p.hides(h, first, kRows, j0, F::kLoop)) continue;
    __syncthreads();
    load_tile<kDim, F::kLoop, true, false>(key_rows + j0 * width, width, p.length - j0, dim, keys, nullptr);
    load_tile<kDim, F::kLoop, false, true>(key_rows + j0 * width + dim, width, p.length - j0, dim, nullptr, values);
    __syncthreads();
    float s[4][F::kColumns];
    place.multiply(queries, keys, s);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const std::int64_t i = first + 4 * place.y + r;
      const std::int64_t j = j0 + F::kColumns * place.x;
      float largest = -INFINITY;
#pragma unroll
      for (int c = 0; c < F::kColumns; ++c) {
        const bool seen = i < p.length && j + c < p.length && p.sees(b, h, i, j + c);
        s[r][c] = seen ? p.scale * s[r][c] : -INFINITY;
        largest = fmaxf(largest, s[r][c]);
      }
      const float highest = fmaxf(top[r], row_largest(largest));
      const float base = highest == -INFINITY ? 0.0f : highest;
      const float shrink = expf(top[r] - base);
      top[r] = highest;
      float sum = 0.0f;
#pragma unroll
      for (int c = 0; c < F::kColumns; ++c) sum += s[r][c] = expf(s[r][c] - base);
      total[r] = total[r] * shrink + row_sum(sum);
#pragma unroll
      for (float& value : sums[r]) value *= shrink;
      float kept[F::kColumns];
      multipliers(p, key, b, h, i, j, kept);
#pragma unroll
      for (int c = 0; c < F::kColumns; ++c) s[r][c] *= kept[c];
    }
    place.store_weights(s, weights);
    __syncthreads();
    place.add_products(weights, values, sums);
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const std::int64_t i = first + 4 * place.y + r;
    if (i >= p.length) continue;
    place.store_row(sums[r], total[r] > 0.0f ? 1.0f / total[r] : 0.0f, dim, out + ((b * p.length + i) * p.heads.query + h) * dim);
    if (place.x == 0) lse[p.stat(b, h, i)] = total[r] > 0.0f ? top[r] + logf(total[r]) : -INFINITY;
  }
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads) backward_query(Problem p, const T* dout, const T* packed, T* dpacked) {
  using F = Form<kDim>;
  extern __shared__ __align__(16) float shared[];
  float* queries = shared;
  float* douts = queries + F::kRowTile;
  float* keys = douts + F::kRowTile;
  float* values = keys + F::kLoopTile;
  float* plain_keys = values + F::kLoopTile;
  float* weights = plain_keys + F::kPlainTile;
  const Place<kDim> place;
  const std::int64_t first = first_row();
  const std::int64_t h = blockIdx.y;
  const std::int64_t b = blockIdx.z;
  const auto dim = static_cast<int>(p.heads.dim);
  const std::int64_t width = p.heads.packed_width;
  const std::int64_t out_width = p.heads.query * dim;
  const T* sample = packed + b * p.length * width;
  const T* key_rows = sample + p.heads.key_at(h / p.heads.per_group);
  load_tile<kDim, kRows, true, false>(sample + first * width + p.heads.query_at(h), width, p.length - first, dim, queries, nullptr);
  load_tile<kDim, kRows, true, false>(dout + (b * p.length + first) * out_width + h * dim, out_width, p.length - first, dim, douts,
                                      nullptr);
  const DropoutKey key = key_of(p);
  float lse[4];
  float delta[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const std::int64_t i = first + 4 * place.y + r;
    lse[r] = i < p.length ? p.lse[p.stat(b, h, i)] : -INFINITY;
    delta[r] = i < p.length ? p.delta[p.stat(b, h, i)] : 0.0f;
  }
  float sums[4][F::kWide] = {};
  const Reach reach = keys_of(p, first, F::kLoop);
  for (std::int64_t j0 = reach.begin; j0 < reach.end; j0 += F::kLoop) {
    if (p.hides(h, first, kRows, j0, F::kLoop)) continue;
    __syncthreads();
    load_tile<kDim, F::kLoop, true, true>(key_rows + j0 * width, width, p.length - j0, dim, keys, plain_keys);
    load_tile<kDim, F::kLoop, true, false>(key_rows + j0 * width + dim, width, p.length - j0, dim, values, nullptr);
    __syncthreads();
    float s[4][F::kColumns];
    float through[4][F::kColumns];
    place.multiply(queries, keys, s);
    place.multiply(douts, values, through);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const std::int64_t i = first + 4 * place.y + r;
      const std::int64_t j = j0 + F::kColumns * place.x;
      float kept[F::kColumns];
      multipliers(p, key, b, h, i, j, kept);
#pragma unroll
      for (int c = 0; c < F::kColumns; ++c) {
        const bool seen = lse[r] != -INFINITY && j + c < p.length && p.sees(b, h, i, j + c);
        s[r][c] = seen ? expf(p.scale * s[r][c] - lse[r]) * (through[r][c] * kept[c] - delta[r]) : 0.0f;
      }
    }
    place.store_weights(s, weights);
    __syncthreads();
    place.add_products(weights, plain_keys, sums);
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const std::int64_t i = first + 4 * place.y + r;
    if (i < p.length) place.store_row(sums[r], p.scale, dim, dpacked + (b * p.length + i) * width + p.heads.query_at(h));
  }
}

// Rows are keys here: a thread's four are those whose words are made together.
template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads) backward_key(Problem p, const T* dout, const T* packed, T* dpacked) {
  using F = Form<kDim>;
  extern __shared__ __align__(16) float shared[];
  float* keys = shared;
  float* values = keys + F::kRowTile;
  float* queries = values + F::kRowTile;
  float* douts = queries + F::kLoopTile;
  float* plain_queries = douts + F::kLoopTile;
  float* plain_douts = plain_queries + F::kPlainTile;
  float* weights = plain_douts + F::kPlainTile;
  float* gradients = weights + F::kWeightTile;
  const Place<kDim> place;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows;
  const std::int64_t g = blockIdx.y;
  const std::int64_t b = blockIdx.z;
  const auto dim = static_cast<int>(p.heads.dim);
  const std::int64_t width = p.heads.packed_width;
  const std::int64_t out_width = p.heads.query * dim;
  const T* sample = packed + b * p.length * width;
  const T* key_rows = sample + first * width + p.heads.key_at(g);
  load_tile<kDim, kRows, true, false>(key_rows, width, p.length - first, dim, keys, nullptr);
  load_tile<kDim, kRows, true, false>(key_rows + dim, width, p.length - first, dim, values, nullptr);
  const DropoutKey key = key_of(p);
  float dkey[4][F::kWide] = {};
  float dvalue[4][F::kWide] = {};
  const std::int64_t j = first + 4 * place.y;
  const Reach reach = queries_of(p, first, F::kLoop);
  for (std::int64_t n = 0; n < p.heads.per_group; ++n) {
    const std::int64_t h = g * p.heads.per_group + n;
    for (std::int64_t i0 = reach.begin; i0 < reach.end; i0 += F::kLoop) {
      if (p.hides(h, i0, F::kLoop, first, kRows)) continue;
      __syncthreads();
      load_tile<kDim, F::kLoop, true, true>(sample + i0 * width + p.heads.query_at(h), width, p.length - i0, dim, queries, plain_queries);
      load_tile<kDim, F::kLoop, true, true>(dout + (b * p.length + i0) * out_width + h * dim, out_width, p.length - i0, dim, douts,
                                            plain_douts);
      __syncthreads();
      float s[4][F::kColumns];
      float through[4][F::kColumns];
      place.multiply(keys, queries, s);
      place.multiply(values, douts, through);
#pragma unroll
      for (int c = 0; c < F::kColumns; ++c) {
        const std::int64_t i = i0 + F::kColumns * place.x + c;
        const float lse = i < p.length ? p.lse[p.stat(b, h, i)] : -INFINITY;
        const float delta = i < p.length ? p.delta[p.stat(b, h, i)] : 0.0f;
        float kept[4];
        multipliers(p, key, b, h, i, j, kept);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const bool seen = lse != -INFINITY && j + r < p.length && p.sees(b, h, i, j + r);
          const float weight = seen ? expf(p.scale * s[r][c] - lse) : 0.0f;
          s[r][c] = weight * kept[r];
          through[r][c] = weight * (through[r][c] * kept[r] - delta);
        }
      }
      place.store_weights(s, weights);
      place.store_weights(through, gradients);
      __syncthreads();
      place.add_products(weights, plain_douts, dvalue);
      place.add_products(gradients, plain_queries, dkey);
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (j + r >= p.length) continue;
    T* to = dpacked + (b * p.length + j + r) * width + p.heads.key_at(g);
    place.store_row(dkey[r], p.scale, dim, to);
    place.store_row(dvalue[r], 1.0f, dim, to + dim);
  }
}

// use(T{}, kDim)
template <typename Use>
void with_form(base::DType dtype, std::int64_t dim, Use&& use) {
  with_element(dtype, [&](auto zero) { with_tile_dim(dim, [&](auto size) { use(zero, size); }); });
}

void attention(const Call& call, cudaStream_t stream) {
  const Problem p = attention_problem(call);
  with_form(call.inputs[0].type.dtype, p.heads.dim, [&](auto zero, auto dim) {
    using T = decltype(zero);
    launch_tiles({"attention.tiles", tile_grid(p, p.heads.query), kThreads, bytes_of(Form<dim.value>::kForward)}, forward<T, dim.value>,
                 stream, p, call.inputs[0].as<const T>(), call.outputs[0].as<T>(), call.outputs[1].as<float>());
  });
}

void attention_grad(const Call& call, cudaStream_t stream) {
  const std::int64_t head_dim = std::get<ops::AttentionGrad>(call.op).forward.heads.dim;
  with_form(call.inputs[1].type.dtype, head_dim, [&](auto zero, auto dim) {
    using T = decltype(zero);
    using F = Form<dim.value>;
    const auto [p, dout, in, gradient] = begin_attention_grad<T>(call, stream);
    launch_tiles({"attention_grad.tiles", tile_grid(p, p.heads.query), kThreads, bytes_of(F::kBackwardQuery)}, backward_query<T, dim.value>,
                 stream, p, dout, in.query, gradient.query);
    launch_tiles({"attention_grad.tiles", tile_grid(p, p.heads.kv), kThreads, bytes_of(F::kBackwardKey)}, backward_key<T, dim.value>,
                 stream, p, dout, in.query, gradient.query);
  });
}

std::optional<std::string> refuse(const ops::KernelQuery& query) {
  const ops::AttentionView view = ops::attention_of(query.op);
  const base::TensorType& packed = query.inputs[view.packed()];
  if (!is_element(packed.dtype)) return "operands are not f32, bf16 or f16";
  return refuse_tiles(view.attention, packed, bytes_of(std::max(Form<64>::kBackwardKey, Form<kMostTileDim>::kBackwardKey)));
}

constexpr Kernel kKernels[] = {
    {.op = "attention", .name = "attention.tiles", .refusal = refuse, .launch = attention},
    {.op = "attention_grad",
     .name = "attention_grad.tiles",
     .refusal = refuse,
     .workspace = attention_grad_workspace,
     .launch = attention_grad},
};

}  // namespace

std::span<const Kernel> tiled_attention_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

// Attention on tensor cores for 16-bit elements, every mask, and dropout of our own counters: what cuDNN's does not take. A block makes 64
// rows of a result, a warp sixteen of them, and walks over the other side in tiles that are fetched one ahead. Every sum has one order.
//
// Scores stay in registers: where a product leaves two neighbouring tiles of eight columns, the next one reads sixteen of its left side.
// The gradient of keys and values therefore has keys as rows, that of queries has queries, and neither turns a tile over.
#include <algorithm>

#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/mma_tiles.cuh"
#include "kernels/cuda/table.h"

namespace plimsoll::kernels::cuda {

namespace {

using Problem = AttentionProblem;

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// Which of the thread's elements dropout keeps, as bits: element e of tile t is bit 4 t + e. Four keys side by side have their words from
// one counter, so threads that have such keys share the work and pass words on. All of a step's bits are made at once: counters are
// independent of one another, but each takes long.
struct Dropping {
  DropoutKey key;
  std::uint32_t sample, threshold;
  std::uint64_t first_row;  // of the head's queries, over all heads
  std::uint32_t row_groups;

  __device__ Dropping(const Problem& p, std::int64_t b, std::int64_t h)
      : key(dropout_key(p.dropout)),
        sample(static_cast<std::uint32_t>(p.dropout.samples[b])),
        threshold(p.dropout.threshold),
        first_row(static_cast<std::uint64_t>((p.first_head + h) * p.length)),
        row_groups(static_cast<std::uint32_t>(p.length / 4)) {}

  __device__ __forceinline__ std::uint64_t group(int i, int j) const { return (first_row + i) * row_groups + j / 4; }
  __device__ __forceinline__ std::uint32_t kept(std::uint32_t word, int bit) const { return word < threshold ? 0u : 1u << bit; }

  // Queries i and i + 8 of the thread, keys from j on.
  template <int kTiles>
  __device__ __forceinline__ std::uint32_t by_queries(int i, int j) const {
    const int lane = lane_of();
    const bool odd = lane % 2 != 0;  // makes the lower query's words, the other the upper's
    const std::uint64_t first = group(i + (odd ? 8 : 0), j + lane / 2 % 2 * 4);
    std::uint32_t bits = 0;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const base::RandomBlock made = dropout_words(key, sample, first + 2 * t);
      const std::uint32_t left = __shfl_xor_sync(~0u, odd ? made[0] : made[2], 1);
      const std::uint32_t right = __shfl_xor_sync(~0u, odd ? made[1] : made[3], 1);
      bits |= kept(odd ? left : made[0], 4 * t) | kept(odd ? right : made[1], 4 * t + 1);
      bits |= kept(odd ? made[2] : left, 4 * t + 2) | kept(odd ? made[3] : right, 4 * t + 3);
    }
    return bits;
  }

  // Keys j and j + 8 of the thread, queries from i on.
  template <int kTiles>
  __device__ __forceinline__ std::uint32_t by_keys(int j, int i) const {
    const int lane = lane_of();
    // Of four threads with keys below one another, thread r makes the words of element r for all of them: a 4 x 4 turned over.
    const int r = lane / 4 % 4;
    const bool odd = r % 2 != 0;
    const bool high = r >= 2;
    const std::uint64_t first = group(i + lane % 4 * 2 + r % 2, j - r + r / 2 * 8);
    std::uint32_t bits = 0;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const base::RandomBlock made = dropout_words(key, sample, first + static_cast<std::uint64_t>(8 * t) * row_groups);
      const std::uint32_t one = __shfl_xor_sync(~0u, odd ? made[0] : made[1], 4);
      const std::uint32_t two = __shfl_xor_sync(~0u, odd ? made[2] : made[3], 4);
      const std::uint32_t half[4] = {odd ? one : made[0], odd ? made[1] : one, odd ? two : made[2], odd ? made[3] : two};
      const std::uint32_t three = __shfl_xor_sync(~0u, high ? half[0] : half[2], 8);
      const std::uint32_t four = __shfl_xor_sync(~0u, high ? half[1] : half[3], 8);
      bits |= kept(high ? three : half[0], 4 * t) | kept(high ? four : half[1], 4 * t + 1);
      bits |= kept(high ? half[2] : three, 4 * t + 2) | kept(high ? half[3] : four, 4 * t + 3);
    }
    return bits;
  }
};

__device__ __forceinline__ float multiplier(const Problem& p, std::uint32_t bits, int bit) {
  return (bits >> bit & 1u) != 0 ? p.dropout.scale : 0.0f;
}

// The masks of one sample. Kernels that know no patterns have nothing of them in their loops.
template <bool kPattern>
struct Masks {
  const Problem& p;
  int length, low, high;
  const std::int32_t* segments;

  __device__ Masks(const Problem& problem, std::int64_t b)
      : p(problem),
        length(static_cast<int>(p.length)),
        low(static_cast<int>(max(p.band.low, -p.length))),
        high(static_cast<int>(min(p.band.high, p.length))),
        segments(p.segments == nullptr ? nullptr : p.segments + b * p.length) {}

  // Whether queries [i, i + queries) all see keys [j, j + keys): then no element needs to be asked for.
  __device__ __forceinline__ bool all_seen(int i, int queries, int j, int keys) const {
    return segments == nullptr && !kPattern && low <= i - (j + keys - 1) && i + queries - 1 - j < high && j + keys <= length &&
           i + queries <= length;
  }
  // Of a query or key; those of one are read once, those of the other for each tile.
  __device__ __forceinline__ int segment(int n) const { return segments == nullptr ? 0 : n < length ? segments[n] : -1; }
  __device__ __forceinline__ bool sees(std::int64_t h, int i, int of_i, int j, int of_j) const {
    return i < length && j < length && low <= i - j && i - j < high && of_i == of_j && of_i >= 0 && (!kPattern || p.pattern_sees(h, i, j));
  }
};

template <typename T, int kDim, bool kPattern>
__global__ void __launch_bounds__(kThreads, 3) forward(Problem p, const T* packed, T* out, float* lse) {
  using F = Form<kDim>;
  extern __shared__ __align__(16) unsigned char memory[];
  T* queries = reinterpret_cast<T*>(memory);
  T* loops = queries + F::kRowTile;  // keys and values, twice
  const int lane = lane_of();
  const std::int64_t first = first_row();
  const std::int64_t h = blockIdx.y;
  const std::int64_t b = blockIdx.z;
  const auto dim = static_cast<int>(p.heads.dim);
  const std::int64_t width = p.heads.packed_width;
  const T* sample = packed + b * p.length * width;
  const T* key_rows = sample + p.heads.key_at(h / p.heads.per_group);
  const Masks<kPattern> masks(p, b);
  const bool drops = p.dropout.samples != nullptr;
  const auto fetch_loop = [&](std::int64_t j0, int stage) {
    T* to = loops + stage * 2 * F::kLoopTile;
    fetch<kDim, F::kLoop>(key_rows + j0 * width, width, p.length - j0, dim, to);
    fetch<kDim, F::kLoop>(key_rows + j0 * width + dim, width, p.length - j0, dim, to + F::kLoopTile);
    end_of_fetch();
  };
  const Reach reach = keys_of(p, first, F::kLoop);
  // From j0 on, the first tile that a pattern does not leave empty.
  const auto listed = [&](std::int64_t j0) {
    while (kPattern && j0 < reach.end && p.hides(h, first, kRows, j0, F::kLoop)) j0 += F::kLoop;
    return j0;
  };
  const std::int64_t begin = listed(reach.begin);
  fetch<kDim, kRows>(sample + first * width + p.heads.query_at(h), width, p.length - first, dim, queries);
  if (begin < reach.end) fetch_loop(begin, 0);
  const int warp_first = static_cast<int>(first) + warp_row();
  const int i = warp_first + lane / 4;
  const int own[2] = {masks.segment(i), masks.segment(i + 8)};
  const float scale = p.scale * kLog2e;
  float sums[F::kParts][4] = {};
  float top[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // this thread's part
  int stage = 0;
  for (auto j0 = static_cast<int>(begin), next = 0; j0 < reach.end; j0 = next, stage ^= 1) {
    next = static_cast<int>(listed(j0 + F::kLoop));
    const bool more = next < reach.end;
    if (more) fetch_loop(next, stage ^ 1);
    const std::uint32_t kept = drops ? Dropping(p, b, h).template by_queries<F::kTiles>(i, j0) : 0;
    wait_for_fetch(more);
    __syncthreads();
    const T* keys = loops + stage * 2 * F::kLoopTile;
    float s[F::kTiles][4];
    scores<kDim>(queries + warp_row() * F::kStride, keys, s);
    const bool open = masks.all_seen(warp_first, kWarpRows, j0, F::kLoop);
    float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int t = 0; t < F::kTiles; ++t) {
      const int j = j0 + 8 * t + lane % 4 * 2;
      const int theirs[2] = {masks.segment(j), masks.segment(j + 1)};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool seen = open || masks.sees(h, i + e / 2 * 8, own[e / 2], j + e % 2, theirs[e % 2]);
        s[t][e] = seen ? s[t][e] * scale : -INFINITY;
        largest[e / 2] = fmaxf(largest[e / 2], s[t][e]);
      }
    }
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float highest = fmaxf(top[half], row_largest(largest[half]));
      base[half] = highest == -INFINITY ? 0.0f : highest;
      const float shrink = exp2_of(top[half] - base[half]);
      top[half] = highest;
      total[half] *= shrink;
#pragma unroll
      for (auto& part : sums) {
        part[2 * half] *= shrink;
        part[2 * half + 1] *= shrink;
      }
    }
#pragma unroll
    for (int t = 0; t < F::kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        total[e / 2] += s[t][e] = exp2_of(s[t][e] - base[e / 2]);
        if (drops) s[t][e] *= multiplier(p, kept, 4 * t + e);
      }
    }
    add_products<kDim>(s, keys + F::kLoopTile, sums);
    __syncthreads();
  }
  float part[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = row_sum(total[half]);
    part[half] = sum > 0.0f ? 1.0f / sum : 0.0f;
    const int query = i + 8 * half;
    if (lane % 4 == 0 && query < p.length) lse[p.stat(b, h, query)] = sum > 0.0f ? (top[half] + log2f(sum)) * kLn2 : -INFINITY;
  }
  const std::int64_t out_width = p.heads.query * dim;
  store(sums, part[0], part[1], p.length - warp_first, out_width, dim, out + (b * p.length + warp_first) * out_width + h * dim);
}

// In units of log 2, and so that a query that sees nothing, or is not there, weighs nothing.
__device__ __forceinline__ float lse_of(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  const float lse = i < p.length ? p.lse[p.stat(b, h, i)] : -INFINITY;
  return lse == -INFINITY ? INFINITY : lse * kLog2e;
}
__device__ __forceinline__ float delta_of(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  return i < p.length ? p.delta[p.stat(b, h, i)] : 0.0f;
}

template <typename T, int kDim, bool kPattern>
__global__ void __launch_bounds__(kThreads) backward_query(Problem p, const T* dout, const T* packed, T* dpacked) {
  using F = Form<kDim>;
  extern __shared__ __align__(16) unsigned char memory[];
  T* queries = reinterpret_cast<T*>(memory);
  T* douts = queries + F::kRowTile;
  T* loops = douts + F::kRowTile;  // keys and values, twice
  const int lane = lane_of();
  const std::int64_t first = first_row();
  const std::int64_t h = blockIdx.y;
  const std::int64_t b = blockIdx.z;
  const auto dim = static_cast<int>(p.heads.dim);
  const std::int64_t width = p.heads.packed_width;
  const std::int64_t out_width = p.heads.query * dim;
  const T* sample = packed + b * p.length * width;
  const T* key_rows = sample + p.heads.key_at(h / p.heads.per_group);
  const Masks<kPattern> masks(p, b);
  const bool drops = p.dropout.samples != nullptr;
  const auto fetch_loop = [&](std::int64_t j0, int stage) {
    T* to = loops + stage * 2 * F::kLoopTile;
    fetch<kDim, F::kLoop>(key_rows + j0 * width, width, p.length - j0, dim, to);
    fetch<kDim, F::kLoop>(key_rows + j0 * width + dim, width, p.length - j0, dim, to + F::kLoopTile);
    end_of_fetch();
  };
  const Reach reach = keys_of(p, first, F::kLoop);
  // From j0 on, the first tile that a pattern does not leave empty.
  const auto listed = [&](std::int64_t j0) {
    while (kPattern && j0 < reach.end && p.hides(h, first, kRows, j0, F::kLoop)) j0 += F::kLoop;
    return j0;
  };
  const std::int64_t begin = listed(reach.begin);
  fetch<kDim, kRows>(sample + first * width + p.heads.query_at(h), width, p.length - first, dim, queries);
  fetch<kDim, kRows>(dout + (b * p.length + first) * out_width + h * dim, out_width, p.length - first, dim, douts);
  if (begin < reach.end) fetch_loop(begin, 0);
  const int warp_first = static_cast<int>(first) + warp_row();
  const int i = warp_first + lane / 4;
  const int own[2] = {masks.segment(i), masks.segment(i + 8)};
  const float scale = p.scale * kLog2e;
  const float lse[2] = {lse_of(p, b, h, i), lse_of(p, b, h, i + 8)};
  const float delta[2] = {delta_of(p, b, h, i), delta_of(p, b, h, i + 8)};
  float sums[F::kParts][4] = {};
  int stage = 0;
  for (auto j0 = static_cast<int>(begin), next = 0; j0 < reach.end; j0 = next, stage ^= 1) {
    next = static_cast<int>(listed(j0 + F::kLoop));
    const bool more = next < reach.end;
    if (more) fetch_loop(next, stage ^ 1);
    const std::uint32_t kept = drops ? Dropping(p, b, h).template by_queries<F::kTiles>(i, j0) : 0;
    wait_for_fetch(more);
    __syncthreads();
    const T* keys = loops + stage * 2 * F::kLoopTile;
    float s[F::kTiles][4];
    float through[F::kTiles][4];
    scores<kDim>(queries + warp_row() * F::kStride, keys, s);
    scores<kDim>(douts + warp_row() * F::kStride, keys + F::kLoopTile, through);
    const bool open = masks.all_seen(warp_first, kWarpRows, j0, F::kLoop);
#pragma unroll
    for (int t = 0; t < F::kTiles; ++t) {
      const int j = j0 + 8 * t + lane % 4 * 2;
      const int theirs[2] = {masks.segment(j), masks.segment(j + 1)};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool seen = open || masks.sees(h, i + e / 2 * 8, own[e / 2], j + e % 2, theirs[e % 2]);
        if (drops) through[t][e] *= multiplier(p, kept, 4 * t + e);
        s[t][e] = seen ? exp2_of(s[t][e] * scale - lse[e / 2]) * (through[t][e] - delta[e / 2]) : 0.0f;
      }
    }
    add_products<kDim>(s, keys, sums);
    __syncthreads();
  }
  store(sums, p.scale, p.scale, p.length - warp_first, width, dim, dpacked + (b * p.length + warp_first) * width + p.heads.query_at(h));
}

template <typename T, int kDim, bool kPattern>
__global__ void __launch_bounds__(kThreads) backward_key(Problem p, const T* dout, const T* packed, T* dpacked) {
  using F = Form<kDim>;
  extern __shared__ __align__(16) unsigned char memory[];
  T* keys = reinterpret_cast<T*>(memory);
  T* values = keys + F::kRowTile;
  T* loops = values + F::kRowTile;                                   // queries and their gradients, twice
  auto* stats = reinterpret_cast<float*>(loops + 4 * F::kLoopTile);  // lse and delta of the queries, twice
  const int lane = lane_of();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows;
  const std::int64_t g = blockIdx.y;
  const std::int64_t b = blockIdx.z;
  const auto dim = static_cast<int>(p.heads.dim);
  const std::int64_t width = p.heads.packed_width;
  const std::int64_t out_width = p.heads.query * dim;
  const T* sample = packed + b * p.length * width;
  const T* key_rows = sample + first * width + p.heads.key_at(g);
  const Masks<kPattern> masks(p, b);
  const bool drops = p.dropout.samples != nullptr;
  const auto fetch_loop = [&](std::int64_t h, std::int64_t i0, int stage) {
    T* to = loops + stage * 2 * F::kLoopTile;
    fetch<kDim, F::kLoop>(sample + i0 * width + p.heads.query_at(h), width, p.length - i0, dim, to);
    fetch<kDim, F::kLoop>(dout + (b * p.length + i0) * out_width + h * dim, out_width, p.length - i0, dim, to + F::kLoopTile);
    end_of_fetch();
    const int n = static_cast<int>(threadIdx.x) % F::kLoop;
    float* of_stage = stats + stage * 2 * F::kLoop;
    if (threadIdx.x < F::kLoop) of_stage[n] = lse_of(p, b, h, i0 + n);
    if (static_cast<int>(threadIdx.x) / F::kLoop == 1) of_stage[F::kLoop + n] = delta_of(p, b, h, i0 + n);
  };
  const Reach reach = queries_of(p, first, F::kLoop);
  const std::int64_t tiles = (reach.end - reach.begin + F::kLoop - 1) / F::kLoop;
  const std::int64_t steps = tiles * p.heads.per_group;
  const auto head_at = [&](std::int64_t step) { return g * p.heads.per_group + step / tiles; };
  const auto query_at = [&](std::int64_t step) { return static_cast<int>(reach.begin + step % tiles * F::kLoop); };
  fetch<kDim, kRows>(key_rows, width, p.length - first, dim, keys);
  fetch<kDim, kRows>(key_rows + dim, width, p.length - first, dim, values);
  // From a step on, the first whose tile a pattern does not leave empty.
  const auto listed = [&](std::int64_t step) {
    while (kPattern && step < steps && p.hides(head_at(step), query_at(step), F::kLoop, first, kRows)) ++step;
    return step;
  };
  const std::int64_t begin = listed(0);
  if (begin < steps) fetch_loop(head_at(begin), query_at(begin), 0);
  const int warp_first = static_cast<int>(first) + warp_row();
  const int j = warp_first + lane / 4;
  const int own[2] = {masks.segment(j), masks.segment(j + 8)};
  const float scale = p.scale * kLog2e;
  float dkey[F::kParts][4] = {};
  float dvalue[F::kParts][4] = {};
  int stage = 0;
  for (std::int64_t step = begin, next = 0; step < steps; step = next, stage ^= 1) {
    next = listed(step + 1);
    const std::int64_t h = head_at(step);
    const int i0 = query_at(step);
    const bool more = next < steps;
    if (more) fetch_loop(head_at(next), query_at(next), stage ^ 1);
    const std::uint32_t kept = drops ? Dropping(p, b, h).template by_keys<F::kTiles>(j, i0) : 0;
    wait_for_fetch(more);
    __syncthreads();
    const T* queries = loops + stage * 2 * F::kLoopTile;
    const float* lse = stats + stage * 2 * F::kLoop;
    float s[F::kTiles][4];
    float through[F::kTiles][4];
    scores<kDim>(keys + warp_row() * F::kStride, queries, s);
    scores<kDim>(values + warp_row() * F::kStride, queries + F::kLoopTile, through);
    const bool open = masks.all_seen(i0, F::kLoop, warp_first, kWarpRows);
#pragma unroll
    for (int t = 0; t < F::kTiles; ++t) {
      const int i = i0 + 8 * t + lane % 4 * 2;
      const int theirs[2] = {masks.segment(i), masks.segment(i + 1)};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int n = 8 * t + lane % 4 * 2 + e % 2;
        const bool seen = open || masks.sees(h, i + e % 2, theirs[e % 2], j + e / 2 * 8, own[e / 2]);
        const float weight = seen ? exp2_of(s[t][e] * scale - lse[n]) : 0.0f;
        const float factor = drops ? multiplier(p, kept, 4 * t + e) : 1.0f;
        s[t][e] = weight * factor;
        through[t][e] = weight * (through[t][e] * factor - lse[F::kLoop + n]);
      }
    }
    add_products<kDim>(s, queries + F::kLoopTile, dvalue);
    add_products<kDim>(through, queries, dkey);
    __syncthreads();
  }
  T* to = dpacked + (b * p.length + warp_first) * width + p.heads.key_at(g);
  store(dkey, p.scale, p.scale, p.length - warp_first, width, dim, to);
  store(dvalue, 1.0f, 1.0f, p.length - warp_first, width, dim, to + dim);
}

// use(T{}, kDim)
template <typename Use>
void with_form(base::DType dtype, std::int64_t dim, Use&& use) {
  with_tile_dim(dim, [&](auto size) { dtype == base::DType::f16 ? use(__half{}, size) : use(__nv_bfloat16{}, size); });
}

template <bool kPattern>
void attention(const Problem& p, const Call& call, cudaStream_t stream) {
  with_form(call.inputs[0].type.dtype, p.heads.dim, [&](auto zero, auto dim) {
    using T = decltype(zero);
    launch_tiles({"attention.mma", tile_grid(p, p.heads.query), kThreads, Form<dim.value>::kForward}, forward<T, dim.value, kPattern>,
                 stream, p, call.inputs[0].as<const T>(), call.outputs[0].as<T>(), call.outputs[1].as<float>());
  });
}

template <bool kPattern>
void attention_grad(const ops::Attention& forward, const Call& call, cudaStream_t stream) {
  with_form(call.inputs[1].type.dtype, forward.heads.dim, [&](auto zero, auto dim) {
    using T = decltype(zero);
    using F = Form<dim.value>;
    const auto [p, dout, in, gradient] = begin_attention_grad<T>(call, stream);
    launch_tiles({"attention_grad.mma", tile_grid(p, p.heads.query), kThreads, F::kBackwardQuery}, backward_query<T, dim.value, kPattern>,
                 stream, p, dout, in.query, gradient.query);
    launch_tiles({"attention_grad.mma", tile_grid(p, p.heads.kv), kThreads, F::kBackwardKey}, backward_key<T, dim.value, kPattern>, stream,
                 p, dout, in.query, gradient.query);
  });
}

void launch_attention(const Call& call, cudaStream_t stream) {
  const Problem p = attention_problem(call);
  p.pattern.code < 0 ? attention<false>(p, call, stream) : attention<true>(p, call, stream);
}

void launch_attention_grad(const Call& call, cudaStream_t stream) {
  const ops::Attention& forward = std::get<ops::AttentionGrad>(call.op).forward;
  forward.pattern.rule == nullptr ? attention_grad<false>(forward, call, stream) : attention_grad<true>(forward, call, stream);
}

std::optional<std::string> refuse(const ops::KernelQuery& query) {
  const ops::AttentionView view = ops::attention_of(query.op);
  const ops::Attention& op = view.attention;
  const base::TensorType& packed = query.inputs[view.packed()];
  if (packed.dtype != base::DType::bf16 && packed.dtype != base::DType::f16) return "operands are not bf16 or f16";
  if (op.rate > 0.0 && packed.shape[1] % 4 != 0) return "with dropout, sequences are not multiples of four";
  if (op.heads.dim % 8 != 0) return "a head's rows are not multiples of 16 bytes";
  return refuse_tiles(op, packed, std::max(Form<64>::kBackwardKey, Form<kMostTileDim>::kBackwardKey));
}

constexpr Kernel kKernels[] = {
    {.op = "attention", .name = "attention.mma", .refusal = refuse, .launch = launch_attention},
    {.op = "attention_grad",
     .name = "attention_grad.mma",
     .refusal = refuse,
     .workspace = attention_grad_workspace,
     .launch = launch_attention_grad},
};

}  // namespace

std::span<const Kernel> mma_attention_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

// Attention for every mask, element type and head size up to 256: what neither the library nor tiles take. One warp makes one
// row of a result (a query's output, a query's gradient, a key's and value's gradients) and walks over the other side in
// order, so every sum has one order. Scores are never stored.
#include "kernels/cuda/attention_problem.cuh"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/table.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kMostDim = 256;

using Layout = HeadLayout;
using Problem = AttentionProblem;

// A head's row, spread over a warp: element lane + 32 n in slot n.
template <int kSlots>
struct Row {
  float at[kSlots];

  template <typename T>
  __device__ static Row load(const T* from, std::int64_t dim) {
    Row row;
#pragma unroll
    for (int n = 0; n < kSlots; ++n) {
      const std::int64_t e = threadIdx.x + 32 * n;
      row.at[n] = e < dim ? to_f32(from[e]) : 0.0f;
    }
    return row;
  }
  __device__ static Row zero() {
    Row row;
#pragma unroll
    for (int n = 0; n < kSlots; ++n) row.at[n] = 0.0f;
    return row;
  }
  template <typename T>
  __device__ void store(T* to, std::int64_t dim, float factor) const {
#pragma unroll
    for (int n = 0; n < kSlots; ++n) {
      const std::int64_t e = threadIdx.x + 32 * n;
      if (e < dim) to[e] = from_f32<T>(at[n] * factor);
    }
  }
  __device__ void add(const Row& other, float factor) {
#pragma unroll
    for (int n = 0; n < kSlots; ++n) at[n] = fmaf(other.at[n], factor, at[n]);
  }
  __device__ void multiply(float factor) {
#pragma unroll
    for (int n = 0; n < kSlots; ++n) at[n] *= factor;
  }
  __device__ static float dot(const Row& a, const Row& b) {
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kSlots; ++n) sum = fmaf(a.at[n], b.at[n], sum);
    return warp_sum(sum);
  }
};

// Which row a warp makes: of (batch, heads, length), the last fastest.
struct Place {
  std::int64_t b, h, i;
  bool inside;
  __device__ Place(const Problem& p, std::int64_t heads, std::int64_t length) {
    std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
    inside = row < p.batch * heads * length;
    i = row % length;
    row /= length;
    h = row % heads;
    b = row / heads;
  }
};

__device__ std::int64_t first_key(const Problem& p, std::int64_t i) { return max(std::int64_t{0}, i - p.band.high + 1); }
__device__ std::int64_t end_key(const Problem& p, std::int64_t i) { return min(p.keys, i - p.band.low + 1); }

// A head's row of queries, or of what lies like them; of keys; of values.
template <typename T>
__device__ T* query_row(const Problem& p, const AttentionTensors<T>& in, std::int64_t b, std::int64_t h, std::int64_t i) {
  return in.query + (b * p.length + i) * p.heads.query_width + p.heads.query_at(h);
}
template <typename T>
__device__ T* key_row(const Problem& p, const AttentionTensors<T>& in, std::int64_t b, std::int64_t g, std::int64_t j) {
  return in.key + (b * p.keys + j) * p.heads.key_width + p.heads.key_at(g);
}
template <typename T>
__device__ T* value_row(const Problem& p, const AttentionTensors<T>& in, std::int64_t b, std::int64_t g, std::int64_t j) {
  return in.value + (b * p.keys + j) * p.heads.key_width + p.heads.key_at(g);
}

template <typename T, int kSlots>
__global__ void forward(Problem p, AttentionTensors<const T> in, T* out, float* lse) {
  const Place at(p, p.heads.query, p.length);
  if (!at.inside) return;
  const std::int64_t dim = p.heads.dim;
  const std::int64_t g = at.h / p.heads.per_group;
  const auto query = Row<kSlots>::load(query_row(p, in, at.b, at.h, at.i), dim);
  const DropoutKey key = p.dropout.samples != nullptr ? dropout_key(p.dropout) : DropoutKey{};
  auto sum = Row<kSlots>::zero();
  float largest = -INFINITY;
  float total = 0.0f;
  const std::int64_t end = end_key(p, at.i);
  for (std::int64_t j = first_key(p, at.i); j < end; ++j) {
    if (!p.sees(at.b, at.h, at.i, j)) continue;
    const float score = p.scale * Row<kSlots>::dot(query, Row<kSlots>::load(key_row(p, in, at.b, g, j), dim));
    if (score > largest) {
      const float shrink = expf(largest - score);
      total *= shrink;
      sum.multiply(shrink);
      largest = score;
    }
    const float weight = expf(score - largest);
    total += weight;
    sum.add(Row<kSlots>::load(value_row(p, in, at.b, g, j), dim), weight * p.multiplier(key, at.b, at.h, at.i, j));
  }
  sum.store(out + ((at.b * p.length + at.i) * p.heads.query + at.h) * dim, dim, total > 0.0f ? 1.0f / total : 0.0f);
  if (threadIdx.x == 0) lse[p.stat(at.b, at.h, at.i)] = total > 0.0f ? largest + logf(total) : -INFINITY;
}

template <typename T, int kSlots>
__global__ void backward_query(Problem p, const T* dout, AttentionTensors<const T> in, AttentionTensors<T> gradient) {
  const Place at(p, p.heads.query, p.length);
  if (!at.inside) return;
  const std::int64_t dim = p.heads.dim;
  const std::int64_t g = at.h / p.heads.per_group;
  const auto query = Row<kSlots>::load(query_row(p, in, at.b, at.h, at.i), dim);
  const auto upstream = Row<kSlots>::load(dout + ((at.b * p.length + at.i) * p.heads.query + at.h) * dim, dim);
  const DropoutKey key = p.dropout.samples != nullptr ? dropout_key(p.dropout) : DropoutKey{};
  const float lse = p.lse[p.stat(at.b, at.h, at.i)];
  const float delta = p.delta[p.stat(at.b, at.h, at.i)];
  auto sum = Row<kSlots>::zero();
  const std::int64_t end = lse == -INFINITY ? 0 : end_key(p, at.i);
  for (std::int64_t j = first_key(p, at.i); j < end; ++j) {
    if (!p.sees(at.b, at.h, at.i, j)) continue;
    const auto own = Row<kSlots>::load(key_row(p, in, at.b, g, j), dim);
    const float weight = expf(p.scale * Row<kSlots>::dot(query, own) - lse);
    const auto value = Row<kSlots>::load(value_row(p, in, at.b, g, j), dim);
    const float through = Row<kSlots>::dot(upstream, value) * p.multiplier(key, at.b, at.h, at.i, j);
    sum.add(own, weight * (through - delta));
  }
  sum.store(query_row(p, gradient, at.b, at.h, at.i), dim, p.scale);
}

template <typename T, int kSlots>
__global__ void backward_key(Problem p, const T* dout, AttentionTensors<const T> in, AttentionTensors<T> gradient) {
  const Place at(p, p.heads.kv, p.keys);  // h is the key-value head, i the key
  if (!at.inside) return;
  const std::int64_t dim = p.heads.dim;
  const auto own = Row<kSlots>::load(key_row(p, in, at.b, at.h, at.i), dim);
  const auto value = Row<kSlots>::load(value_row(p, in, at.b, at.h, at.i), dim);
  const DropoutKey key = p.dropout.samples != nullptr ? dropout_key(p.dropout) : DropoutKey{};
  auto dkey = Row<kSlots>::zero();
  auto dvalue = Row<kSlots>::zero();
  const std::int64_t first = max(std::int64_t{0}, at.i + p.band.low);
  const std::int64_t end = min(p.length, at.i + p.band.high);
  for (std::int64_t n = 0; n < p.heads.per_group; ++n) {
    const std::int64_t h = at.h * p.heads.per_group + n;
    for (std::int64_t i = first; i < end; ++i) {
      if (!p.sees(at.b, h, i, at.i)) continue;
      const float lse = p.lse[p.stat(at.b, h, i)];
      if (lse == -INFINITY) continue;
      const auto query = Row<kSlots>::load(query_row(p, in, at.b, h, i), dim);
      const auto upstream = Row<kSlots>::load(dout + ((at.b * p.length + i) * p.heads.query + h) * dim, dim);
      const float weight = expf(p.scale * Row<kSlots>::dot(query, own) - lse);
      const float multiplier = p.multiplier(key, at.b, h, i, at.i);
      const float through = Row<kSlots>::dot(upstream, value) * multiplier;
      dvalue.add(upstream, weight * multiplier);
      dkey.add(query, weight * (through - p.delta[p.stat(at.b, h, i)]));
    }
  }
  dkey.store(key_row(p, gradient, at.b, at.h, at.i), dim, p.scale);
  dvalue.store(value_row(p, gradient, at.b, at.h, at.i), dim, 1.0f);
}

unsigned grid_of(const Problem& p, std::int64_t heads, std::int64_t length) { return blocks_for(p.batch * heads * length, kWarps); }

// use(T{}, slots) for the element type and the least number of slots that holds a head.
template <typename Use>
void with_form(base::DType dtype, std::int64_t dim, Use&& use) {
  with_element(dtype, [&](auto zero) {
    if (dim <= 64) {
      use(zero, std::integral_constant<int, 2>());
    } else {
      use(zero, std::integral_constant<int, kMostDim / 32>());
    }
  });
}

void attention(const Call& call, cudaStream_t stream) {
  const Problem p = attention_problem(call);
  with_form(call.inputs[0].type.dtype, p.heads.dim, [&](auto zero, auto slots) {
    using T = decltype(zero);
    const AttentionTensors<const T> in(std::get<ops::Attention>(call.op), call.inputs);
    forward<T, slots.value>
        <<<grid_of(p, p.heads.query, p.length), dim3(32, kWarps), 0, stream>>>(p, in, call.outputs[0].as<T>(), call.outputs[1].as<float>());
  });
  check_launch("attention.plain");
}

void attention_grad(const Call& call, cudaStream_t stream) {
  const std::int64_t head_dim = std::get<ops::AttentionGrad>(call.op).forward.heads.dim;
  with_form(call.inputs[1].type.dtype, head_dim, [&](auto zero, auto slots) {
    using T = decltype(zero);
    const dim3 block(32, kWarps);
    const auto [p, dout, in, gradient] = begin_attention_grad<T>(call, stream);
    backward_query<T, slots.value><<<grid_of(p, p.heads.query, p.length), block, 0, stream>>>(p, dout, in, gradient);
    backward_key<T, slots.value><<<grid_of(p, p.heads.kv, p.keys), block, 0, stream>>>(p, dout, in, gradient);
  });
  check_launch("attention_grad.plain");
}

// ---- with a cache of keys and values

struct CacheProblem {
  Layout heads;
  std::int64_t batch, length, slots;
  ops::Band band;
  DevicePattern pattern;
  std::int64_t first_head;
  float scale;
};

// One block a row and key-value head. Of rows that go to the same slot the last one counts.
template <typename T>
__global__ void extend_cache(CacheProblem p, const T* packed, const std::int32_t* positions, T* cache) {
  const std::int64_t t = blockIdx.x % p.length;
  const std::int64_t b = blockIdx.x / p.length;
  const std::int64_t g = blockIdx.y;
  const std::int32_t position = positions[b * p.length + t];
  for (std::int64_t later = t + 1; later < p.length; ++later) {
    if (positions[b * p.length + later] == position) return;
  }
  const T* from = packed + (b * p.length + t) * p.heads.packed_width + p.heads.key_at(g);
  T* keys = cache + ((b * 2 * p.heads.kv + 2 * g) * p.slots + position) * p.heads.dim;
  T* values = keys + p.slots * p.heads.dim;
  for (std::int64_t d = threadIdx.x; d < p.heads.dim; d += blockDim.x) {
    keys[d] = from[d];
    values[d] = from[p.heads.dim + d];
  }
}

// One warp a row and query head.
template <typename T, int kSlots>
__global__ void cached_forward(CacheProblem p, const T* packed, const std::int32_t* positions, const T* cache, T* out) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (row >= p.batch * p.length * p.heads.query) return;
  const std::int64_t h = row % p.heads.query;
  const std::int64_t t = row / p.heads.query;
  const std::int64_t b = t / p.length;
  const std::int64_t g = h / p.heads.per_group;
  const std::int64_t dim = p.heads.dim;
  const T* keys = cache + (b * 2 * p.heads.kv + 2 * g) * p.slots * dim;
  const T* values = keys + p.slots * dim;
  const auto query = Row<kSlots>::load(packed + t * p.heads.packed_width + p.heads.query_at(h), dim);
  const std::int64_t position = positions[t];
  const std::int64_t first = max(std::int64_t{0}, position - p.band.high + 1);
  auto sum = Row<kSlots>::zero();
  float largest = -INFINITY;
  float total = 0.0f;
  for (std::int64_t j = first; j <= position; ++j) {
    if (!p.pattern.sees(position, j, p.first_head + h)) continue;
    const float score = p.scale * Row<kSlots>::dot(query, Row<kSlots>::load(keys + j * dim, dim));
    if (score > largest) {
      const float shrink = expf(largest - score);
      total *= shrink;
      sum.multiply(shrink);
      largest = score;
    }
    const float weight = expf(score - largest);
    total += weight;
    sum.add(Row<kSlots>::load(values + j * dim, dim), weight);
  }
  sum.store(out + row * dim, dim, total > 0.0f ? 1.0f / total : 0.0f);
}

void cached_attention(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::CachedAttention>(call.op);
  const base::Shape& packed = call.inputs[0].type.shape;
  const CacheProblem p{.heads = layout_of(op.heads),
                       .batch = packed[0],
                       .length = packed[1],
                       .slots = call.inputs[2].type.shape[2],
                       .band = op.mask().band,
                       .pattern = device_pattern(op.pattern),
                       .first_head = op.first_head,
                       .scale = 1.0f / sqrtf(static_cast<float>(op.heads.dim))};
  with_form(call.inputs[0].type.dtype, op.heads.dim, [&](auto zero, auto slots) {
    using T = decltype(zero);
    const dim3 rows(static_cast<unsigned>(p.batch * p.length), static_cast<unsigned>(op.heads.kv));
    const auto* positions = call.inputs[1].as<const std::int32_t>();
    extend_cache<T><<<rows, 64, 0, stream>>>(p, call.inputs[0].as<const T>(), positions, call.outputs[1].as<T>());
    cached_forward<T, slots.value><<<blocks_for(p.batch * p.length * op.heads.query, kWarps), dim3(32, kWarps), 0, stream>>>(
        p, call.inputs[0].as<const T>(), positions, call.outputs[1].as<const T>(), call.outputs[0].as<T>());
  });
  check_launch("cached_attention.plain");
}

std::optional<std::string> refuse(const base::TensorType& packed, const ops::Heads& heads) {
  if (!is_element(packed.dtype)) return "operands are not f32, bf16 or f16";
  if (heads.dim > kMostDim) return "heads are larger than 256";
  return std::nullopt;
}

std::optional<std::string> refuse_plain(const ops::KernelQuery& query) {
  const ops::AttentionView view = ops::attention_of(query.op);
  if (auto refusal = refuse_pattern(view.attention.pattern)) return refusal;
  return refuse(query.inputs[view.packed()], view.attention.heads);
}

std::optional<std::string> refuse_cached(const ops::KernelQuery& query) {
  const auto& op = std::get<ops::CachedAttention>(query.op);
  if (auto refusal = refuse_pattern(op.pattern)) return refusal;
  return refuse(query.inputs[0], op.heads);
}

constexpr Kernel kKernels[] = {
    {.op = "attention", .name = "attention.plain", .refusal = refuse_plain, .launch = attention},
    {.op = "attention_grad",
     .name = "attention_grad.plain",
     .refusal = refuse_plain,
     .workspace = attention_grad_workspace,
     .launch = attention_grad},
    {.op = "cached_attention", .name = "cached_attention.plain", .refusal = refuse_cached, .launch = cached_attention},
};

}  // namespace

std::span<const Kernel> plain_attention_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

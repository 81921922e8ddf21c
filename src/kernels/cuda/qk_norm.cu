// RMS normalisation of every query and key head of packed rows, and its gradient. A head is 16-byte pieces of a few neighbouring lanes;
// heads of other sizes are taken element by element by a warp. Values only pass through.
#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/table.h"
#include "kernels/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

// Where the heads of a packed row lie: groups of `per_group` queries, a key and a value.
struct PackedHeads {
  int per_group = 1;
  int kv = 1;
  int dim = 0;

  __device__ int slots() const { return kv * (per_group + 2); }
};

PackedHeads packed(const ops::Heads& heads) {
  return {static_cast<int>(heads.per_group()), static_cast<int>(heads.kv), static_cast<int>(heads.dim)};
}

// One head of one row.
struct HeadAt {
  std::int64_t offset;  // of its first element in the tensor
  std::int64_t stat;    // its place among the statistics
  bool is_query;
  bool is_value;
};

// Item n of rows * slots.
__device__ __forceinline__ HeadAt head_at(const PackedHeads& heads, std::int64_t item) {
  const int slots = heads.slots();
  const std::int64_t row = item / slots;
  const int slot = static_cast<int>(item - row * slots);
  const int group = slot / (heads.per_group + 2);
  const int place = slot - group * (heads.per_group + 2);
  const int queries = heads.kv * heads.per_group;
  const bool is_query = place < heads.per_group;
  const int column = is_query ? group * heads.per_group + place : queries + group;
  return {item * heads.dim, row * (queries + heads.kv) + column, is_query, place == heads.per_group + 1};
}

struct QkArguments {
  PackedHeads heads;
  std::int64_t items = 0;
  const void* x = nullptr;   // what is, or was, normalised
  const void* dy = nullptr;  // backward
  void* y = nullptr;         // the result: y, or dx
  Span weight_q, weight_k;
  float* stats = nullptr;
  float eps = 0.0f;
  float* partials = nullptr;  // backward: (blocks, 2, stride)
  std::int64_t stride = 0;
};

constexpr int kBlock = 256;

// kLanes lanes hold a head, 16 bytes each.
template <typename T, int kLanes>
__global__ void __launch_bounds__(kBlock) qk_norm_heads(QkArguments a) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * (kBlock / kLanes) + threadIdx.x / kLanes;
  const int column = static_cast<int>(threadIdx.x) % kLanes * kWide<T>;
  const bool live = item < a.items;
  const HeadAt head = head_at(a.heads, live ? item : 0);
  uint4 raw = make_uint4(0, 0, 0, 0);
  if (live) raw = *reinterpret_cast<const uint4*>(static_cast<const T*>(a.x) + head.offset + column);
  float x[kWide<T>], weight[kWide<T>];
  decode_wide<T>(raw, x);
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kWide<T>; ++i) squares = fmaf(x[i], x[i], squares);
  const float inverse = 1.0f / sqrtf(lanes_sum<kLanes>(squares) / static_cast<float>(a.heads.dim) + a.eps);
  if (!live) return;
  if (!head.is_value) {
    read_small(head.is_query ? a.weight_q : a.weight_k, column, weight);
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) x[i] = x[i] * inverse * weight[i];
    raw = encode_wide<T>(x);
    if (column == 0) a.stats[head.stat] = inverse;
  }
  *reinterpret_cast<uint4*>(static_cast<T*>(a.y) + head.offset + column) = raw;
}

template <typename T>
__global__ void __launch_bounds__(kWarp) qk_norm_any(QkArguments a) {
  const HeadAt head = head_at(a.heads, blockIdx.x);
  const T* x = static_cast<const T*>(a.x) + head.offset;
  T* y = static_cast<T*>(a.y) + head.offset;
  float squares = 0.0f;
  for (int c = static_cast<int>(threadIdx.x); c < a.heads.dim; c += kWarp) squares = fmaf(to_f32(x[c]), to_f32(x[c]), squares);
  const float inverse = 1.0f / sqrtf(lanes_sum(squares) / static_cast<float>(a.heads.dim) + a.eps);
  const Span weight = head.is_query ? a.weight_q : a.weight_k;
  for (int c = static_cast<int>(threadIdx.x); c < a.heads.dim; c += kWarp) {
    y[c] = head.is_value ? x[c] : from_f32<T>(to_f32(x[c]) * inverse * read_one(weight, c));
  }
  if (!head.is_value && threadIdx.x == 0) a.stats[head.stat] = inverse;
}

// dx = (g - h mean(g h)) inverse with h = x inverse and g = dy weight; dweight += dy h. Blocks take sets of heads in turn and keep
// the sums of both weights in registers.
template <typename T, int kLanes>
__global__ void __launch_bounds__(kBlock) qk_norm_grad_heads(QkArguments a) {
  constexpr int kHeads = kBlock / kLanes;
  __shared__ float shared[kBlock * kWide<T>];
  const int column = static_cast<int>(threadIdx.x) % kLanes * kWide<T>;
  float dweight_q[kWide<T>] = {};
  float dweight_k[kWide<T>] = {};
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kHeads; first < a.items;
       first += static_cast<std::int64_t>(gridDim.x) * kHeads) {
    const std::int64_t item = first + threadIdx.x / kLanes;
    const bool live = item < a.items;
    const HeadAt head = head_at(a.heads, live ? item : 0);
    uint4 dy_raw = make_uint4(0, 0, 0, 0);
    uint4 x_raw = dy_raw;
    if (live) {
      dy_raw = *reinterpret_cast<const uint4*>(static_cast<const T*>(a.dy) + head.offset + column);
      if (!head.is_value) x_raw = *reinterpret_cast<const uint4*>(static_cast<const T*>(a.x) + head.offset + column);
    }
    const float inverse = live && !head.is_value ? a.stats[head.stat] : 0.0f;
    float dy[kWide<T>], x[kWide<T>], weight[kWide<T>];
    decode_wide<T>(dy_raw, dy);
    decode_wide<T>(x_raw, x);
    read_small(head.is_query ? a.weight_q : a.weight_k, column, weight);
    float sum_gh = 0.0f;
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) {
      const float h = x[i] * inverse;  // 0 for values and past the end, so those add nothing
      sum_gh = fmaf(dy[i] * weight[i], h, sum_gh);
      dweight_q[i] = fmaf(head.is_query ? dy[i] : 0.0f, h, dweight_q[i]);
      dweight_k[i] = fmaf(head.is_query ? 0.0f : dy[i], h, dweight_k[i]);
    }
    const float tilt = lanes_sum<kLanes>(sum_gh) / static_cast<float>(a.heads.dim) * inverse * inverse;
    if (!live) continue;
    if (!head.is_value) {
#pragma unroll
      for (int i = 0; i < kWide<T>; ++i) dy[i] = fmaf(dy[i] * weight[i], inverse, -x[i] * tilt);
      dy_raw = encode_wide<T>(dy);
    }
    *reinterpret_cast<uint4*>(static_cast<T*>(a.y) + head.offset + column) = dy_raw;
  }
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) shared[threadIdx.x * kWide<T> + i] = which == 0 ? dweight_q[i] : dweight_k[i];
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < a.heads.dim; c += kBlock) {
      float total = 0.0f;
      for (int group = 0; group < kHeads; ++group) total += shared[group * a.heads.dim + c];
      a.partials[(blockIdx.x * 2 + which) * a.stride + c] = total;
    }
  }
}

// A block is a warp, which takes heads in turn and adds to its sums in the workspace, where each column is one lane's.
template <typename T>
__global__ void __launch_bounds__(kWarp) qk_norm_grad_any(QkArguments a) {
  float* sums = a.partials + blockIdx.x * 2 * a.stride;
  for (int c = static_cast<int>(threadIdx.x); c < a.heads.dim; c += kWarp) sums[c] = sums[a.stride + c] = 0.0f;
  for (std::int64_t item = blockIdx.x; item < a.items; item += gridDim.x) {
    const HeadAt head = head_at(a.heads, item);
    const T* dy = static_cast<const T*>(a.dy) + head.offset;
    const T* x = static_cast<const T*>(a.x) + head.offset;
    T* dx = static_cast<T*>(a.y) + head.offset;
    if (head.is_value) {
      for (int c = static_cast<int>(threadIdx.x); c < a.heads.dim; c += kWarp) dx[c] = dy[c];
      continue;
    }
    const Span weight = head.is_query ? a.weight_q : a.weight_k;
    float* dweight = head.is_query ? sums : sums + a.stride;
    const float inverse = a.stats[head.stat];
    float sum_gh = 0.0f;
    for (int c = static_cast<int>(threadIdx.x); c < a.heads.dim; c += kWarp) {
      const float h = to_f32(x[c]) * inverse;
      sum_gh = fmaf(to_f32(dy[c]) * read_one(weight, c), h, sum_gh);
      dweight[c] = fmaf(to_f32(dy[c]), h, dweight[c]);
    }
    const float tilt = lanes_sum(sum_gh) / static_cast<float>(a.heads.dim) * inverse * inverse;
    for (int c = static_cast<int>(threadIdx.x); c < a.heads.dim; c += kWarp) {
      dx[c] = from_f32<T>(fmaf(to_f32(dy[c]) * read_one(weight, c), inverse, -to_f32(x[c]) * tilt));
    }
  }
}

// Calls launch(Lanes<..>()) if a head is a power of two of 16-byte pieces, at most a warp's; else other().
template <int kLanes_>
struct Lanes {
  static constexpr int value = kLanes_;
};

template <typename T, typename Launch, typename Other>
void with_lanes(int dim, bool aligned, const Launch& launch, const Other& other) {
  switch (aligned && dim % kWide<T> == 0 ? dim / kWide<T> : 0) {
    case 4: return launch(Lanes<4>());
    case 8: return launch(Lanes<8>());
    case 16: return launch(Lanes<16>());
    case 32: return launch(Lanes<32>());
    default: return other();
  }
}

void qk_norm(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::QkNorm>(call.op);
  QkArguments a;
  a.heads = packed(op.heads);
  a.items = call.inputs[0].type.shape.rows() * op.heads.packed_width() / op.heads.dim;
  a.x = call.inputs[0].data;
  a.y = call.outputs[0].data;
  a.weight_q = span_of(call.inputs[1]);
  a.weight_k = span_of(call.inputs[2]);
  a.stats = call.outputs[1].as<float>();
  a.eps = static_cast<float>(op.eps);
  if (a.items == 0) return;
  const bool aligned = is_aligned(a.x) && is_aligned(a.y) && are_aligned(a.weight_q, a.weight_k);
  with_element(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_lanes<T>(
        a.heads.dim, aligned,
        [&](auto lanes) {
          constexpr int kLanes = decltype(lanes)::value;
          qk_norm_heads<T, kLanes><<<blocks_for(a.items, kBlock / kLanes), kBlock, 0, stream>>>(a);
        },
        [&] { qk_norm_any<T><<<static_cast<unsigned>(a.items), kWarp, 0, stream>>>(a); });
  });
  check_launch("qk_norm");
}

std::int64_t qk_norm_grad_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  workspace.take<float>(kSumBlocks * 2 * padded_row(std::get<ops::QkNormGrad>(query.op).heads.dim));
  return workspace.bytes();
}

void qk_norm_grad(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::QkNormGrad>(call.op);
  Workspace workspace(call.workspace);
  QkArguments a;
  a.heads = packed(op.heads);
  a.items = call.inputs[0].type.shape.rows() * op.heads.packed_width() / op.heads.dim;
  a.dy = call.inputs[0].data;
  a.x = call.inputs[1].data;
  a.y = call.outputs[0].data;
  a.weight_q = span_of(call.inputs[2]);
  a.weight_k = span_of(call.inputs[3]);
  a.stats = call.inputs[4].as<float>();
  a.stride = padded_row(op.heads.dim);
  a.partials = workspace.take<float>(kSumBlocks * 2 * a.stride);
  const bool aligned = is_aligned(a.dy) && is_aligned(a.x) && is_aligned(a.y) && are_aligned(a.weight_q, a.weight_k);
  // All blocks start, also those without a head: their sums are zeros.
  with_element(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_lanes<T>(
        a.heads.dim, aligned,
        [&](auto lanes) { qk_norm_grad_heads<T, decltype(lanes)::value><<<static_cast<unsigned>(kSumBlocks), kBlock, 0, stream>>>(a); },
        [&] { qk_norm_grad_any<T><<<static_cast<unsigned>(kSumBlocks), kWarp, 0, stream>>>(a); });
  });
  check_launch("qk_norm_grad");
  PartSums sums{.partials = a.partials,
                .parts = kSumBlocks,
                .stride = a.stride,
                .width = op.heads.dim,
                .totals = 2,
                .total = {span_of(call.outputs[1]), span_of(call.outputs[2])},
                .present = {}};
  if (op.accumulate) {
    sums.present[0] = span_of(call.inputs[5]);
    sums.present[1] = span_of(call.inputs[6]);
  }
  launch_part_sums(sums, stream);
}

constexpr Kernel kKernels[] = {
    {.op = "qk_norm", .name = "qk_norm.heads", .refusal = refuse_mixed_rows, .launch = qk_norm},
    {.op = "qk_norm_grad",
     .name = "qk_norm_grad.heads",
     .refusal = refuse_mixed_rows,
     .workspace = qk_norm_grad_workspace,
     .launch = qk_norm_grad},
};

}  // namespace

std::span<const Kernel> qk_norm_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

// What our own attention kernels compute: heads in packed rows, which query sees which key, what is dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <fmt/format.h>

#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/workspace.h"
#include "ops/masks/all.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

// Where heads lie in rows of queries and in rows of keys, which are the same rows where heads are packed.
struct HeadLayout {
  std::int64_t query, kv, dim, per_group, packed_width;
  bool separate = false;
  std::int64_t query_width = packed_width;  // of a row
  std::int64_t key_width = packed_width;

  __device__ std::int64_t query_at(std::int64_t h) const {
    return separate ? h * dim : ((h / per_group) * (per_group + 2) + h % per_group) * dim;
  }
  __device__ std::int64_t key_at(std::int64_t g) const { return separate ? g * dim : (g * (per_group + 2) + per_group) * dim; }
};

inline HeadLayout layout_of(const ops::Heads& heads) { return {heads.query, heads.kv, heads.dim, heads.per_group(), heads.packed_width()}; }

inline HeadLayout layout_of(const ops::Attention& op) {
  HeadLayout layout = layout_of(op.heads);
  if (!op.separate) return layout;
  layout.separate = true;
  layout.query_width = op.heads.query * op.heads.dim;
  layout.key_width = op.heads.kv * op.heads.dim;
  return layout;
}

// Rules divide: what few kernels run must not grow all of them.
template <typename Pattern>
__device__ __noinline__ bool pattern_shows(Pattern pattern, std::int64_t query, std::int64_t key, std::int64_t head) {
  return ops::visible_by(ops::AllMasks{}, pattern.code, pattern.numbers, query, key, head);
}
template <typename Pattern>
__device__ __noinline__ bool pattern_hides_all(Pattern pattern, ops::MaskTile tile) {
  return ops::sight_by(ops::AllMasks{}, pattern.code, pattern.numbers, tile) == ops::Sight::none;
}

// A pattern as the device knows it: its rule by the place in the list.
struct DevicePattern {
  int code = -1;  // none
  ops::MaskNumbers numbers{};

  __device__ bool sees(std::int64_t query, std::int64_t key, std::int64_t head) const {
    return code < 0 || pattern_shows(*this, query, key, head);
  }
};

inline DevicePattern device_pattern(const ops::MaskPattern& pattern) {
  return {pattern.rule == nullptr ? -1 : pattern.rule->device_code, pattern.numbers};
}

inline std::optional<std::string> refuse_pattern(const ops::MaskPattern& pattern) {
  if (pattern.rule == nullptr || pattern.rule->device_code >= 0) return std::nullopt;
  return fmt::format("the mask {} is declared outside of ops/masks, so the device has no code for it", pattern.rule->name);
}

struct AttentionProblem {
  HeadLayout heads;
  std::int64_t batch;
  std::int64_t length;  // queries
  std::int64_t keys;
  ops::Band band;  // by rows of the operands
  DevicePattern pattern;
  std::int64_t first_query, first_key, stride;  // positions of rows
  const std::int32_t* segments;                 // of queries; null: all one
  const std::int32_t* key_segments;
  DropoutSite dropout;
  std::int64_t whole_length;  // that elements of dropout are counted by
  std::int64_t first_head;
  float scale;
  const float* lse;    // backward
  const float* delta;  // backward: the sum of dout * out over a head, for each query, less what arrived at lse

  __device__ std::int64_t query_position(std::int64_t i) const { return first_query + i * stride; }
  __device__ std::int64_t key_position(std::int64_t j) const { return first_key + j * stride; }
  __device__ bool pattern_sees(std::int64_t h, std::int64_t i, std::int64_t j) const {
    return pattern.code < 0 || pattern.sees(query_position(i), key_position(j), first_head + h);
  }
  __device__ bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (!band.sees(i - j) || !pattern_sees(h, i, j)) return false;
    if (segments == nullptr) return true;
    const std::int32_t own = segments[b * length + i];
    return own >= 0 && own == key_segments[b * keys + j];
  }
  // Whether a pattern hides all of `key_count` keys from j on from all of `query_count` queries from i on.
  __device__ bool hides(std::int64_t h, std::int64_t i, std::int64_t query_count, std::int64_t j, std::int64_t key_count) const {
    if (pattern.code < 0 || i >= length || j >= keys) return false;
    const ops::MaskTile tile{
        {query_position(i), min(query_count, length - i), stride}, {key_position(j), min(key_count, keys - j), stride}, first_head + h};
    return pattern_hides_all(pattern, tile);
  }
  __device__ std::int64_t stat(std::int64_t b, std::int64_t h, std::int64_t i) const { return (b * heads.query + h) * length + i; }
  __device__ std::uint64_t element(std::int64_t h, std::int64_t i, std::int64_t j) const {
    return static_cast<std::uint64_t>(((first_head + h) * whole_length + query_position(i)) * whole_length + key_position(j));
  }
  __device__ float multiplier(const DropoutKey& key, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (dropout.samples == nullptr) return 1.0f;
    return dropout_multiplier(dropout, key, static_cast<std::uint32_t>(dropout.samples[b]), element(h, i, j));
  }
};

// `tensors` begin with packed, or with queries, keys and values; `masks` are what is behind all tensors.
inline AttentionProblem attention_problem(const ops::Attention& op, std::span<const Tensor> tensors, std::span<const Tensor> masks) {
  const base::Shape& queries = tensors[0].type.shape;
  AttentionProblem p{.heads = layout_of(op),
                     .batch = queries[0],
                     .length = queries[1],
                     .keys = tensors[op.key_operand()].type.shape[1],
                     .band = op.band_of_rows(),
                     .pattern = device_pattern(op.pattern),
                     .first_query = op.first_query,
                     .first_key = op.first_key,
                     .stride = op.stride,
                     .segments = nullptr,
                     .key_segments = nullptr,
                     .dropout = {},
                     .whole_length = op.separate ? op.length : queries[1],
                     .first_head = op.first_head,
                     .scale = 1.0f / sqrtf(static_cast<float>(op.heads.dim)),
                     .lse = nullptr,
                     .delta = nullptr};
  std::size_t at = 0;
  if (op.segmented) p.segments = p.key_segments = masks[at++].as<const std::int32_t>();
  if (op.segmented && op.separate) p.key_segments = masks[at++].as<const std::int32_t>();
  if (op.rate > 0.0) p.dropout = dropout_site(op.rate, op.site, masks[at], masks[at + 1]);
  return p;
}

inline AttentionProblem attention_problem(const Call& call) {
  const auto& op = std::get<ops::Attention>(call.op);
  return attention_problem(op, call.inputs, call.inputs.subspan(op.tensors()));
}

// Queries, keys and values, or their gradients, in tensors of their own or in one. Rows of a head are at query_at and key_at of the layout,
// in all three.
template <typename T>
struct AttentionTensors {
  T *query, *key, *value;

  AttentionTensors(const ops::Attention& op, std::span<const Tensor> tensors)
      : query(tensors[0].as<T>()),
        key(tensors[op.key_operand()].as<T>()),
        value(tensors[op.value_operand()].as<T>() + (op.separate ? 0 : op.heads.dim)) {}
};

__device__ __forceinline__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

inline constexpr int kDeltaWarps = 4;

// delta, by one warp for each query of a head.
template <typename T>
__global__ void attention_deltas(AttentionProblem p, const T* dout, const T* out, const float* dlse, float* delta) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kDeltaWarps + threadIdx.y;  // of (batch, length, heads)
  if (row >= p.batch * p.length * p.heads.query) return;
  float sum = 0.0f;
  for (std::int64_t e = threadIdx.x; e < p.heads.dim; e += 32)
    sum = fmaf(to_f32(dout[row * p.heads.dim + e]), to_f32(out[row * p.heads.dim + e]), sum);
  sum = warp_sum(sum);
  const std::int64_t i = row / p.heads.query % p.length;
  const std::int64_t at = p.stat(row / p.heads.query / p.length, row % p.heads.query, i);
  if (threadIdx.x == 0) delta[at] = dlse == nullptr ? sum : sum - dlse[at];
}

// Of a gradient's call: the deltas are its scratch.
inline std::int64_t attention_grad_workspace(const ops::KernelQuery& query) {
  Workspace pieces;
  pieces.take<float>(query.inputs[std::get<ops::AttentionGrad>(query.op).out_operand() + 1].shape.elements());
  return pieces.bytes();
}

template <typename T>
struct AttentionGradOperands {
  AttentionProblem problem;
  const T* dout;
  AttentionTensors<const T> in;
  AttentionTensors<T> gradient;
};

// Makes the deltas that the passes behind it read.
template <typename T>
AttentionGradOperands<T> begin_attention_grad(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::AttentionGrad>(call.op);
  const std::size_t out = op.out_operand();
  const std::span<const Tensor> tensors = call.inputs.subspan(1);
  AttentionProblem p = attention_problem(op.forward, tensors, call.inputs.subspan(op.masks()));
  Workspace pieces(call.workspace);
  auto* delta = pieces.take<float>(call.inputs[out + 1].type.shape.elements());
  p.lse = call.inputs[out + 1].as<const float>();
  p.delta = delta;
  const auto* dout = call.inputs[0].as<const T>();
  attention_deltas<T><<<blocks_for(p.batch * p.length * p.heads.query, kDeltaWarps), dim3(32, kDeltaWarps), 0, stream>>>(
      p, dout, call.inputs[out].as<const T>(), op.of_lse ? call.inputs[out + 2].as<const float>() : nullptr, delta);
  return {p, dout, {op.forward, tensors}, {op.forward, call.outputs}};
}

}  // namespace plimsoll::kernels::cuda

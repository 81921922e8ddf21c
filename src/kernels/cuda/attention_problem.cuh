// What our own attention kernels compute: heads in packed rows, which query sees which key, what is dropped.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

// ops::Heads, for the device.
struct HeadLayout {
  std::int64_t query, kv, dim, per_group, packed_width;

  __device__ std::int64_t query_at(std::int64_t h) const { return ((h / per_group) * (per_group + 2) + h % per_group) * dim; }
  __device__ std::int64_t key_at(std::int64_t g) const { return (g * (per_group + 2) + per_group) * dim; }
};

inline HeadLayout layout_of(const ops::Heads& heads) { return {heads.query, heads.kv, heads.dim, heads.per_group(), heads.packed_width()}; }

struct AttentionProblem {
  HeadLayout heads;
  std::int64_t batch, length;
  bool causal;
  std::int64_t window;
  const std::int32_t* segments;  // null: all one
  DropoutSite dropout;
  std::int64_t first_head;
  float scale;
  const float* lse;    // backward
  const float* delta;  // backward: the sum of dout * out over a head, for each query

  __device__ bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (causal && j > i) return false;
    if (window > 0 && j <= i - window) return false;
    if (segments == nullptr) return true;
    const std::int32_t own = segments[b * length + i];
    return own >= 0 && own == segments[b * length + j];
  }
  __device__ std::int64_t stat(std::int64_t b, std::int64_t h, std::int64_t i) const { return (b * heads.query + h) * length + i; }
  __device__ std::uint64_t element(std::int64_t h, std::int64_t i, std::int64_t j) const {
    return static_cast<std::uint64_t>(((first_head + h) * length + i) * length + j);
  }
  __device__ float multiplier(const DropoutKey& key, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (dropout.samples == nullptr) return 1.0f;
    return dropout_multiplier(dropout, key, static_cast<std::uint32_t>(dropout.samples[b]), element(h, i, j));
  }
};

inline AttentionProblem attention_problem(const ops::Attention& op, const Tensor& packed, std::span<const Tensor> masks) {
  AttentionProblem p{.heads = layout_of(op.heads),
                     .batch = packed.type.shape[0],
                     .length = packed.type.shape[1],
                     .causal = op.causal,
                     .window = op.window,
                     .segments = op.segmented ? masks[0].as<const std::int32_t>() : nullptr,
                     .dropout = {},
                     .first_head = op.first_head,
                     .scale = 1.0f / sqrtf(static_cast<float>(op.heads.dim)),
                     .lse = nullptr,
                     .delta = nullptr};
  const std::size_t at = op.segmented ? 1 : 0;
  if (op.rate > 0.0) p.dropout = dropout_site(op.rate, op.site, masks[at], masks[at + 1]);
  return p;
}

__device__ __forceinline__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

inline constexpr int kDeltaWarps = 4;

// delta, by one warp for each query of a head.
template <typename T>
__global__ void attention_deltas(AttentionProblem p, const T* dout, const T* out, float* delta) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kDeltaWarps + threadIdx.y;  // of (batch, length, heads)
  if (row >= p.batch * p.length * p.heads.query) return;
  float sum = 0.0f;
  for (std::int64_t e = threadIdx.x; e < p.heads.dim; e += 32)
    sum = fmaf(to_f32(dout[row * p.heads.dim + e]), to_f32(out[row * p.heads.dim + e]), sum);
  sum = warp_sum(sum);
  const std::int64_t i = row / p.heads.query % p.length;
  if (threadIdx.x == 0) delta[p.stat(row / p.heads.query / p.length, row % p.heads.query, i)] = sum;
}

// Of a gradient's call: the deltas are its scratch.
inline std::int64_t attention_grad_workspace(const ops::KernelQuery& query) {
  Workspace pieces;
  pieces.take<float>(query.inputs[3].shape.elements());
  return pieces.bytes();
}

template <typename T>
struct AttentionGradOperands {
  AttentionProblem problem;
  const T* dout;
  const T* packed;
  T* dpacked;
};

// Makes the deltas that the passes behind it read.
template <typename T>
AttentionGradOperands<T> begin_attention_grad(const Call& call, cudaStream_t stream) {
  AttentionProblem p = attention_problem(std::get<ops::AttentionGrad>(call.op).forward, call.inputs[1], call.inputs.subspan(4));
  Workspace pieces(call.workspace);
  auto* delta = pieces.take<float>(call.inputs[3].type.shape.elements());
  p.lse = call.inputs[3].as<const float>();
  p.delta = delta;
  const auto* dout = call.inputs[0].as<const T>();
  attention_deltas<T><<<blocks_for(p.batch * p.length * p.heads.query, kDeltaWarps), dim3(32, kDeltaWarps), 0, stream>>>(
      p, dout, call.inputs[2].as<const T>(), delta);
  return {p, dout, call.inputs[1].as<const T>(), call.outputs[0].as<T>()};
}

}  // namespace plimsoll::kernels::cuda

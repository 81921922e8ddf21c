// Attention over a cache of keys and values: a few queries against many stored positions, so keys and values go through
// the registers once for each query and nothing is tiled. Scores, softmax and sums are f32 whatever the element type.
// A query of a head is computed in one way whoever computes it, so the result does not depend on the thread count.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cached_attention.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

#ifndef PLIMSOLL_KERNELS_CPU_CACHED_ATTENTION_ONCE
#define PLIMSOLL_KERNELS_CPU_CACHED_ATTENTION_ONCE
namespace plimsoll::kernels::cpu {

// One query of one head: keys and values are those of slot 0, of slots [first, last] those are seen that a pattern does not hide.
template <typename T>
struct CachedQuery {
  const T* query;
  const T* keys;
  const T* values;
  T* out;
  std::int64_t first;
  std::int64_t last;
  std::int64_t dim;
  float scale;
  const ops::MaskPattern& pattern;
  std::int64_t head;
};

// Of one thread.
struct CachedScratch {
  CachedScratch(Workspace& workspace, const ops::CachedAttention& op, std::int64_t slots)
      : scores(workspace.take<float>(slots)),
        query(workspace.take<float>(op.heads.dim)),
        out(workspace.take<float>(op.heads.dim)),
        seen(workspace.take<std::int32_t>(op.pattern.rule != nullptr ? slots : 0)) {}

  float* scores;       // (S)
  float* query;        // (D)
  float* out;          // (D)
  std::int32_t* seen;  // (S)
};

}  // namespace plimsoll::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;
using F32Vec = hn::Vec<F32>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));

// `kKeys` scores at a time keep as many sums in flight.
template <int kKeys, typename T>
void score_keys(const float* query, const T* keys, std::int64_t dim, float* scores) {
  const F32 d;
  F32Vec sums[kKeys];
#pragma GCC unroll 4
  for (int key = 0; key < kKeys; ++key) sums[key] = hn::Zero(d);
  std::int64_t at = 0;
  for (; at + kLanes <= dim; at += kLanes) {
    const F32Vec left = hn::LoadU(d, query + at);
#pragma GCC unroll 4
    for (int key = 0; key < kKeys; ++key) sums[key] = hn::MulAdd(left, load(d, keys + key * dim + at), sums[key]);
  }
  if (at < dim) {
    const auto some = static_cast<std::size_t>(dim - at);
    const F32Vec left = load_n(d, query + at, some);
    for (int key = 0; key < kKeys; ++key) sums[key] = hn::MulAdd(left, load_n(d, keys + key * dim + at, some), sums[key]);
  }
  for (int key = 0; key < kKeys; ++key) scores[key] = hn::GetLane(hn::SumOfLanes(d, sums[key]));
}

// scores = exp(scores - their largest); returns their sum.
float softmax_scores(float* scores, std::int64_t count) {
  const F32 d;
  const float largest = *std::max_element(scores, scores + count);
  const F32Vec base = hn::Set(d, largest);
  F32Vec sum = hn::Zero(d);
  std::int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    const F32Vec value = exp(d, hn::Sub(hn::LoadU(d, scores + j), base));
    hn::StoreU(value, d, scores + j);
    sum = hn::Add(sum, value);
  }
  if (j < count) {
    const auto some = static_cast<std::size_t>(count - j);
    const F32Vec value = hn::IfThenElseZero(hn::FirstN(d, some), exp(d, hn::Sub(load_n(d, scores + j, some, largest), base)));
    store_n(d, value, scores + j, some);
    sum = hn::Add(sum, value);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// kVectors vectors of out = sum of weights[j] * values[j], with `step` elements between values.
template <int kVectors, typename T>
void mix_values(const float* weights, const T* values, std::int64_t step, std::int64_t count, float* out) {
  const F32 d;
  F32Vec sums[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (std::int64_t j = 0; j < count; ++j) {
    const F32Vec weight = hn::Set(d, weights[j]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(weight, load(d, values + j * step + v * kLanes), sums[v]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, out + v * kLanes);
}

template <typename T>
void mix_all(const CachedQuery<T>& at, const float* weights, float* out) {
  const T* values = at.values + at.first * at.dim;
  const std::int64_t count = at.last - at.first + 1;
  std::int64_t column = 0;
  for (; column + 4 * kLanes <= at.dim; column += 4 * kLanes) mix_values<4>(weights, values + column, at.dim, count, out + column);
  for (; column + kLanes <= at.dim; column += kLanes) mix_values<1>(weights, values + column, at.dim, count, out + column);
  for (; column < at.dim; ++column) {
    float sum = 0.0f;
    for (std::int64_t j = 0; j < count; ++j) sum += weights[j] * to_f32(values[j * at.dim + column]);
    out[column] = sum;
  }
}

// Scores of what a pattern hides do not count. Returns how many keys are left.
template <typename T>
std::int64_t hide_scores(const CachedQuery<T>& at, const CachedScratch& scratch) {
  const std::int64_t count = at.last - at.first + 1;
  if (at.pattern.rule == nullptr) return count;
  at.pattern.rule->fill(at.pattern.numbers, {{at.last, 1}, {at.first, count}, at.head}, 1, scratch.seen);
  std::int64_t left = count;
  for (std::int64_t j = 0; j < count; ++j) {
    if (scratch.seen[j] != 0) continue;
    scratch.scores[j] = -INFINITY;
    --left;
  }
  return left;
}

template <typename T>
void attend(const CachedQuery<T>& at, const CachedScratch& scratch) {
  for (std::int64_t d = 0; d < at.dim; ++d) scratch.query[d] = to_f32(at.query[d]) * at.scale;
  const std::int64_t count = at.last - at.first + 1;
  const T* keys = at.keys + at.first * at.dim;
  std::int64_t j = 0;
  for (; j + 4 <= count; j += 4) score_keys<4>(scratch.query, keys + j * at.dim, at.dim, scratch.scores + j);
  for (; j < count; ++j) score_keys<1>(scratch.query, keys + j * at.dim, at.dim, scratch.scores + j);
  if (hide_scores(at, scratch) == 0) {
    std::fill_n(at.out, at.dim, from_f32<T>(0.0f));
    return;
  }
  const float sum = softmax_scores(scratch.scores, count);
  mix_all(at, scratch.scores, scratch.out);
  for (std::int64_t d = 0; d < at.dim; ++d) at.out[d] = from_f32<T>(scratch.out[d] / sum);
}

}  // namespace

void attend_f32(const CachedQuery<float>& at, const CachedScratch& scratch) { attend(at, scratch); }
void attend_bf16(const CachedQuery<Bf16>& at, const CachedScratch& scratch) { attend(at, scratch); }
void attend_f16(const CachedQuery<F16>& at, const CachedScratch& scratch) { attend(at, scratch); }

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(attend_f32);
HWY_EXPORT(attend_bf16);
HWY_EXPORT(attend_f16);

namespace {

void attend_one(const CachedQuery<float>& at, const CachedScratch& scratch) { HWY_DYNAMIC_DISPATCH(attend_f32)(at, scratch); }
void attend_one(const CachedQuery<Bf16>& at, const CachedScratch& scratch) { HWY_DYNAMIC_DISPATCH(attend_bf16)(at, scratch); }
void attend_one(const CachedQuery<F16>& at, const CachedScratch& scratch) { HWY_DYNAMIC_DISPATCH(attend_f16)(at, scratch); }

std::int64_t thread_bytes(const ops::CachedAttention& op, std::int64_t slots) {
  Workspace workspace;
  const CachedScratch scratch(workspace, op, slots);
  return workspace.bytes();
}

std::int64_t cached_workspace(const ops::KernelQuery& query) {
  return query.threads * thread_bytes(std::get<ops::CachedAttention>(query.op), query.inputs[2].shape[2]);
}

template <typename T>
void store_rows(const Call& call, const ops::Heads& heads) {
  const base::Shape& packed = call.inputs[0].type.shape;
  const std::int64_t slots = call.inputs[2].type.shape[2];
  const auto bytes = static_cast<std::size_t>(heads.dim) * sizeof(T);
  for (std::int64_t row = 0; row < packed.rows(); ++row) {
    const std::int64_t position = call.inputs[1].as<const std::int32_t>()[row];
    PLIMSOLL_CHECK(position >= 0 && position < slots, "[cached_attention] position {} in a cache of {}", position, slots);
    const T* from = call.inputs[0].as<const T>() + row * heads.packed_width();
    T* to = call.outputs[1].as<T>() + row / packed[1] * 2 * heads.kv * slots * heads.dim + position * heads.dim;
    for (std::int64_t kv_head = 0; kv_head < heads.kv; ++kv_head) {
      std::memcpy(to + 2 * kv_head * slots * heads.dim, from + heads.key_offset(kv_head), bytes);
      std::memcpy(to + (2 * kv_head + 1) * slots * heads.dim, from + heads.value_offset(kv_head), bytes);
    }
  }
}

// A query of a head costs little at the beginning of a text; a thread takes no fewer multiplications than this.
constexpr std::int64_t kLeastWork = 1 << 15;

template <typename T>
void attend_rows(const Call& call, const ops::CachedAttention& op) {
  const ops::Heads& heads = op.heads;
  const base::Shape& packed = call.inputs[0].type.shape;
  const std::int64_t slots = call.inputs[2].type.shape[2];
  const std::int64_t length = packed[1];
  const ops::Band band = op.mask().band;
  const auto* positions = call.inputs[1].as<const std::int32_t>();
  const std::int64_t scratch_bytes = thread_bytes(op, slots);
  const std::int64_t farthest = *std::max_element(positions, positions + packed.rows()) + 1;
  const std::int64_t grain = std::max<std::int64_t>(1, kLeastWork / (2 * farthest * heads.dim));
  // Queries of one head lie side by side, so that its keys stay in the cache of the processor.
  parallel_ranges(call.threads, packed[0] * heads.query * length, grain, [&](std::int64_t begin, std::int64_t end, int thread) {
    Workspace workspace(call.workspace + thread * scratch_bytes);
    const CachedScratch scratch(workspace, op, slots);
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t sample = unit / length / heads.query;
      const std::int64_t head = unit / length % heads.query;
      const std::int64_t row = sample * length + unit % length;
      const std::int64_t position = positions[row];
      const T* keys = call.outputs[1].as<const T>() + (sample * heads.kv + head / heads.per_group()) * 2 * slots * heads.dim;
      attend_one({.query = call.inputs[0].as<const T>() + row * heads.packed_width() + heads.query_offset(head),
                  .keys = keys,
                  .values = keys + slots * heads.dim,
                  .out = call.outputs[0].as<T>() + (row * heads.query + head) * heads.dim,
                  .first = std::max<std::int64_t>(0, position - band.high + 1),
                  .last = position,
                  .dim = heads.dim,
                  .scale = 1.0f / std::sqrt(static_cast<float>(heads.dim)),
                  .pattern = op.pattern,
                  .head = op.first_head + head},
                 scratch);
    }
  });
}

void run_cached(const Call& call) {
  const auto& op = std::get<ops::CachedAttention>(call.op);
  if (call.outputs[1].data != call.inputs[2].data) {
    std::memcpy(call.outputs[1].data, call.inputs[2].data, static_cast<std::size_t>(call.inputs[2].type.bytes()));
  }
  with_element(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    store_rows<T>(call, op.heads);
    attend_rows<T>(call, op);
  });
}

constexpr std::array kKernels{
    Kernel{.op = ops::CachedAttention::kName,
           .name = "cached_attention.simd",
           .refusal = refuse_other_floats,
           .workspace = cached_workspace,
           .run = run_cached},
};

}  // namespace

std::span<const Kernel> cached_attention_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif

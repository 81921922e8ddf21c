// The adjoint of attention's gradient, a query at a time with its row of scores; formulas stand with the reference. Work is split by
// samples and key-value heads: all that is added to a key or a value is added by one thread, in the order of the queries.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"

#ifndef PLIMSOLL_KERNELS_CPU_QUERY_ROW
#define PLIMSOLL_KERNELS_CPU_QUERY_ROW
namespace plimsoll::kernels::cpu {

// One query of one head. Rows of a head are `stride` floats apart, zeros behind its numbers.
struct QueryRow {
  std::int64_t stride;
  const float* keys;
  const float* values;
  const float* arrived_keys;
  const float* arrived_values;
  float* dkeys;  // added to, as dvalues
  float* dvalues;
  const float* query;
  const float* arrived_query;
  const float* dout;
  const float* out;
  float* dquery;  // written, as ddout
  float* ddout;
  std::int64_t begin;  // the keys that may be seen
  std::int64_t end;
  const std::int32_t* segments;  // of the sample; null: none
  std::int32_t segment;
  const std::int32_t* seen;  // whether a pattern lets keys be seen, from `begin` on; null: all
  const float* keep;         // dropout factors of keys, from `begin` on; null: none
  float lse;
  float scale;
  float* probability;  // scratch, by key
  float* slope;
};

}  // namespace plimsoll::kernels::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_second.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t kLanes = hn::MaxLanes(Tag());

HWY_INLINE float dot(const float* a, const float* b, std::int64_t stride) {
  const Tag d;
  Vector sum = hn::Zero(d);
  for (std::int64_t index = 0; index < stride; index += kLanes) sum = hn::MulAdd(load(d, a + index), load(d, b + index), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// to += x * a + y * b.
HWY_INLINE void add_two(float* to, float x, const float* a, float y, const float* b, std::int64_t stride) {
  const Tag d;
  const Vector by_x = hn::Set(d, x);
  const Vector by_y = hn::Set(d, y);
  for (std::int64_t index = 0; index < stride; index += kLanes) {
    store(d, hn::MulAdd(by_x, load(d, a + index), hn::MulAdd(by_y, load(d, b + index), load(d, to + index))), to + index);
  }
}

// Probabilities, which are zero for what is hidden, and slopes of scores; the mean of these is what comes back.
HWY_INLINE float weigh_keys(const QueryRow& row) {
  const Tag d;
  for (std::int64_t j = row.begin; j < row.end; ++j) {
    const float* key = row.keys + j * row.stride;
    const bool hidden =
        (row.segments != nullptr && row.segments[j] != row.segment) || (row.seen != nullptr && row.seen[j - row.begin] == 0);
    row.probability[j] = hidden ? -INFINITY : row.scale * dot(row.query, key, row.stride) - row.lse;
    row.slope[j] = row.scale * (dot(row.arrived_query, key, row.stride) + dot(row.query, row.arrived_keys + j * row.stride, row.stride));
  }
  Vector sum = hn::Zero(d);
  std::int64_t j = row.begin;
  for (; j + kLanes <= row.end; j += kLanes) {
    const Vector p = exp(d, load(d, row.probability + j));
    store(d, p, row.probability + j);
    sum = hn::MulAdd(p, load(d, row.slope + j), sum);
  }
  if (j < row.end) {
    const auto rest = static_cast<std::size_t>(row.end - j);
    const Vector p = exp(d, load_n(d, row.probability + j, rest, -INFINITY));
    store_n(d, p, row.probability + j, rest);
    sum = hn::MulAdd(p, load_n(d, row.slope + j, rest), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void second_of_query(const QueryRow& row) {
  const float mean = weigh_keys(row);
  const auto keep = [&](std::int64_t j) { return row.keep == nullptr ? 1.0f : row.keep[j - row.begin]; };
  const auto moved = [&](std::int64_t j) { return row.probability[j] * (row.slope[j] - mean); };
  for (std::int64_t j = row.begin; j < row.end; ++j) {
    const std::int64_t at = j * row.stride;
    add_two(row.ddout, keep(j) * moved(j), row.values + at, keep(j) * row.probability[j], row.arrived_values + at, row.stride);
  }
  const float delta = dot(row.dout, row.out, row.stride);
  const float delta_moved = dot(row.dout, row.ddout, row.stride);
  for (std::int64_t j = row.begin; j < row.end; ++j) {
    if (row.probability[j] == 0.0f) continue;
    const std::int64_t at = j * row.stride;
    const float rest = keep(j) * dot(row.dout, row.values + at, row.stride) - delta;
    const float rest_moved = keep(j) * dot(row.dout, row.arrived_values + at, row.stride) - delta_moved;
    const float dscore = row.scale * row.probability[j] * rest;
    const float dscore_moved = row.scale * (moved(j) * rest + row.probability[j] * rest_moved);
    add_two(row.dquery, dscore_moved, row.keys + at, dscore, row.arrived_keys + at, row.stride);
    add_two(row.dkeys + at, dscore_moved, row.query, dscore, row.arrived_query, row.stride);
    add_two(row.dvalues + at, keep(j) * moved(j), row.dout, 0.0f, row.dout, row.stride);
  }
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(second_of_query);

namespace {

struct Operands {
  explicit Operands(const Call& call)
      : arrived(call.inputs[0]), dout(call.inputs[1]), packed(call.inputs[2]), out(call.inputs[3]), lse(call.inputs[4].as<const float>()) {
    const ops::Attention& attention = std::get<ops::AttentionGradGrad>(call.op).forward;
    std::size_t next = 5;
    if (attention.segmented) segments = call.inputs[next++].as<const std::int32_t>();
    if (attention.rate == 0.0) return;
    samples = call.inputs[next++].as<const std::int32_t>();
    dropout = dropout_mask(attention.rate, attention.site, *call.inputs[next].as<const ops::StepScalars>());
  }

  const Tensor& arrived;
  const Tensor& dout;
  const Tensor& packed;
  const Tensor& out;
  const float* lse;
  const std::int32_t* segments = nullptr;
  const std::int32_t* samples = nullptr;
  DropoutMask dropout{};
};

// Of one thread: a key-value head's rows, and those of one query.
struct Scratch {
  Scratch(Workspace& workspace, const ops::Attention& attention, std::int64_t length) : stride(padded_row(attention.heads.dim)) {
    for (float** rows : {&keys, &values, &arrived_keys, &arrived_values, &dkeys, &dvalues}) *rows = workspace.take<float>(length * stride);
    for (float** row : {&query, &arrived_query, &dout, &out, &dquery, &ddout}) *row = workspace.take<float>(stride);
    for (float** by_key : {&probability, &slope, &keep}) *by_key = workspace.take<float>(length);
    seen = workspace.take<std::int32_t>(attention.pattern.rule != nullptr ? length : 0);
  }

  std::int64_t stride;
  float *keys, *values, *arrived_keys, *arrived_values, *dkeys, *dvalues;
  float *query, *arrived_query, *dout, *out, *dquery, *ddout;
  float *probability, *slope, *keep;
  std::int32_t* seen;
};

class Heads {
 public:
  Heads(const Call& call, const Operands& operands, const Scratch& scratch)
      : call_(call),
        attention_(std::get<ops::AttentionGradGrad>(call.op).forward),
        heads_(attention_.heads),
        operands_(operands),
        scratch_(scratch),
        length_(operands.packed.type.shape[1]) {}

  // All queries of a key-value head of a sample.
  void run(std::int64_t sample, std::int64_t kv_head) const {
    for (std::int64_t t = 0; t < length_; ++t) {
      const std::int64_t row = sample * length_ + t;
      const std::int64_t at = t * scratch_.stride;
      fetch(operands_.packed, row, heads_.key_offset(kv_head), scratch_.keys + at);
      fetch(operands_.packed, row, heads_.value_offset(kv_head), scratch_.values + at);
      fetch(operands_.arrived, row, heads_.key_offset(kv_head), scratch_.arrived_keys + at);
      fetch(operands_.arrived, row, heads_.value_offset(kv_head), scratch_.arrived_values + at);
    }
    std::fill_n(scratch_.dkeys, length_ * scratch_.stride, 0.0f);
    std::fill_n(scratch_.dvalues, length_ * scratch_.stride, 0.0f);
    for (std::int64_t head = kv_head * heads_.per_group(); head < (kv_head + 1) * heads_.per_group(); ++head) {
      for (std::int64_t t = 0; t < length_; ++t) run_query(sample, head, t);
    }
    for (std::int64_t t = 0; t < length_; ++t) {
      const std::int64_t row = sample * length_ + t;
      put(call_.outputs[1], row, heads_.key_offset(kv_head), scratch_.dkeys + t * scratch_.stride);
      put(call_.outputs[1], row, heads_.value_offset(kv_head), scratch_.dvalues + t * scratch_.stride);
    }
  }

 private:
  void fetch(const Tensor& from, std::int64_t row, std::int64_t offset, float* to) const {
    const float* read = read_f32(from, row * from.type.shape[-1] + offset, heads_.dim, to);
    if (read != to) std::copy_n(read, heads_.dim, to);
    std::fill(to + heads_.dim, to + scratch_.stride, 0.0f);
  }

  void put(const Tensor& to, std::int64_t row, std::int64_t offset, const float* from) const {
    narrow(to.type.dtype, from, element_address(to, row * to.type.shape[-1] + offset), heads_.dim);
  }

  void run_query(std::int64_t sample, std::int64_t head, std::int64_t t) const {
    const std::int64_t row = sample * length_ + t;
    const std::int32_t* segments = operands_.segments == nullptr ? nullptr : operands_.segments + sample * length_;
    const float lse = operands_.lse[(sample * heads_.query + head) * length_ + t];
    std::fill_n(scratch_.dquery, scratch_.stride, 0.0f);
    std::fill_n(scratch_.ddout, scratch_.stride, 0.0f);
    if (!std::isinf(lse)) {  // sees something
      fetch(operands_.packed, row, heads_.query_offset(head), scratch_.query);
      fetch(operands_.arrived, row, heads_.query_offset(head), scratch_.arrived_query);
      fetch(operands_.dout, row, head * heads_.dim, scratch_.dout);
      fetch(operands_.out, row, head * heads_.dim, scratch_.out);
      const ops::Band band = attention_.mask().band;
      const std::int64_t begin = std::max<std::int64_t>(0, t - band.high + 1);
      const std::int64_t end = std::min(length_, t - band.low + 1);
      const ops::MaskPattern& pattern = attention_.pattern;
      if (pattern.rule != nullptr)
        pattern.rule->fill(pattern.numbers, {{t, 1}, {begin, end - begin}, attention_.first_head + head}, 1, scratch_.seen);
      if (operands_.samples != nullptr) {
        const auto first = static_cast<std::uint64_t>(((attention_.first_head + head) * length_ + t) * length_ + begin);
        dropout_multipliers(operands_.dropout, static_cast<std::uint32_t>(operands_.samples[sample]), first, end - begin, scratch_.keep);
      }
      HWY_DYNAMIC_DISPATCH(second_of_query)
      ({.stride = scratch_.stride,
        .keys = scratch_.keys,
        .values = scratch_.values,
        .arrived_keys = scratch_.arrived_keys,
        .arrived_values = scratch_.arrived_values,
        .dkeys = scratch_.dkeys,
        .dvalues = scratch_.dvalues,
        .query = scratch_.query,
        .arrived_query = scratch_.arrived_query,
        .dout = scratch_.dout,
        .out = scratch_.out,
        .dquery = scratch_.dquery,
        .ddout = scratch_.ddout,
        .begin = begin,
        .end = end,
        .segments = segments,
        .segment = segments == nullptr ? 0 : segments[t],
        .seen = pattern.rule == nullptr ? nullptr : scratch_.seen,
        .keep = operands_.samples == nullptr ? nullptr : scratch_.keep,
        .lse = lse,
        .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads_.dim))),
        .probability = scratch_.probability,
        .slope = scratch_.slope});
    }
    put(call_.outputs[0], row, head * heads_.dim, scratch_.ddout);
    put(call_.outputs[1], row, heads_.query_offset(head), scratch_.dquery);
  }

  const Call& call_;
  const ops::Attention& attention_;
  const ops::Heads& heads_;
  const Operands& operands_;
  const Scratch& scratch_;
  std::int64_t length_;
};

std::int64_t second_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  for (int thread = 0; thread < query.threads; ++thread)
    Scratch(workspace, std::get<ops::AttentionGradGrad>(query.op).forward, query.inputs[2].shape[1]);
  return workspace.bytes();
}

void run_second(const Call& call) {
  const ops::Attention& attention = std::get<ops::AttentionGradGrad>(call.op).forward;
  const ops::Heads& heads = attention.heads;
  const Operands operands(call);
  const std::int64_t length = operands.packed.type.shape[1];
  Workspace counted;
  Scratch(counted, attention, length);
  parallel_ranges(call.threads, operands.packed.type.shape[0] * heads.kv, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    Workspace workspace(call.workspace + thread * counted.bytes());
    const Scratch scratch(workspace, attention, length);
    const Heads of_thread(call, operands, scratch);
    for (std::int64_t index = begin; index < end; ++index) of_thread.run(index / heads.kv, index % heads.kv);
  });
}

constexpr std::array kKernels{Kernel{.op = "attention_grad_grad",
                                     .name = "attention_grad_grad.rows",
                                     .refusal = refuse_other_floats,
                                     .workspace = second_workspace,
                                     .run = run_second}};

}  // namespace

std::span<const Kernel> attention_second_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif

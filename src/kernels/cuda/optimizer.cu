// AdamW, Adam and SGD updates of many tensors in one launch: each operand passes through memory once, and clip factor, loss scale and
// the verdict to skip are read from the step scalars. Small tensors cost their bytes, not a launch each. State in leaner forms
// (ops/forms) is f32 in registers.
#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/table.h"
#include "ops/adam_step.h"
#include "ops/forms/bf16.h"
#include "ops/forms/random_rounding.h"
#include "ops/forms/split.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kPieces = 2;  // that a thread has under way
constexpr int kBlockElements = kThreads * kPieces * kPiece;
constexpr int kMostTensors = 24;  // of a launch: its arguments stay under 4 KB

// Of a tensor to be updated. Adam: slots m and v. SGD with momentum: slot 0 is the velocity.
struct Operands {
  Span gradient;
  Span weight;
  Span slot[2];
  Span low;   // of a split weight; null: it is not split
  Span copy;  // null: none
  std::int64_t elements = 0;
  bool aligned = false;
};

// ops::AdamUpdate. What is the same for all elements of a step is worked out once a block.
struct AdamRule {
  ops::AdamConstants constants;
  float eps;

  struct Step {
    ops::AdamStep step;
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
  };
  __device__ Step step_of(const ops::StepScalars& scalars) const {
    return {ops::adam_step(constants, scalars.learning_rate, scalars.gradient_multiplier, scalars.updates + 1),
            static_cast<float>(constants.beta1), static_cast<float>(1.0 - constants.beta1), static_cast<float>(constants.beta2),
            static_cast<float>(1.0 - constants.beta2)};
  }
  // As kernels/cpu/optimizer.cpp rounds it, operation by operation.
  __device__ void update(const Step& s, float gradient, float& weight, float& m, float& v) const {
    const float g = fmaf(weight, s.step.coupled_decay, __fmul_rn(gradient, s.step.multiplier));
    m = fmaf(m, s.beta1, __fmul_rn(g, s.one_minus_beta1));
    v = fmaf(v, s.beta2, __fmul_rn(__fmul_rn(g, g), s.one_minus_beta2));
    weight = fmaf(weight, s.step.keep, -__fdiv_rn(__fmul_rn(m, s.step.rate), fmaf(__fsqrt_rn(v), s.step.spread, eps)));
  }
  __device__ int slots() const { return 2; }
};

struct SgdRule {
  float momentum;
  float decay;

  struct Step {
    float multiplier;
    float rate;
  };
  __device__ Step step_of(const ops::StepScalars& scalars) const { return {scalars.gradient_multiplier, scalars.learning_rate}; }
  __device__ void update(const Step& step, float gradient, float& weight, float& velocity, float&) const {
    const float direction = fmaf(weight, decay, __fmul_rn(gradient, step.multiplier));
    velocity = fmaf(velocity, momentum, direction);
    weight = fmaf(-velocity, step.rate, weight);
  }
  __device__ int slots() const { return momentum != 0.0f ? 1 : 0; }
};

template <typename Rule>
struct Batch {
  const ops::StepScalars* scalars = nullptr;
  int tensors = 0;
  std::uint32_t end_block[kMostTensors];  // of each tensor
  Operands operands[kMostTensors];
  Rule rules[kMostTensors];
};

// The weights, and the second averages without the signs that belong to them.
__device__ void join(const Raw& high, const Raw& low, float (&weight)[kPiece], float (&v)[kPiece]) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    const int shift = 16 * (i % 2);
    const auto above = static_cast<std::uint16_t>(high.word[i / 2] >> shift);
    const auto below = static_cast<std::uint16_t>(low.word[i / 2] >> shift);
    weight[i] = ops::joined({above, below, signbit(v[i]) != 0});
    v[i] = fabsf(v[i]);
  }
}

__device__ void write_halves(const Span& span, const Piece& piece, const std::uint16_t (&code)[kPiece]) {
  auto* to = static_cast<std::uint16_t*>(span.data) + piece.first;
  if (piece.whole) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(code[0] | static_cast<std::uint32_t>(code[1]) << 16, code[2] | static_cast<std::uint32_t>(code[3]) << 16);
    return;
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    if (i < piece.count) to[i] = code[i];
  }
}

__device__ void write_split(const Operands& a, const Piece& piece, const float (&weight)[kPiece], float (&v)[kPiece]) {
  std::uint16_t high[kPiece], low[kPiece];
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    const ops::SplitNumber number = ops::split_number(weight[i]);
    high[i] = number.high;
    low[i] = number.low;
    if (number.down) v[i] = -v[i];
  }
  write_halves(a.weight, piece, high);
  write_halves(a.low, piece, low);
}

// bf16 rounded at random, or f32. A copy of what was rounded has the same bits.
__device__ void write_state(const Span& span, const Piece& piece, const float (&x)[kPiece], const std::uint32_t (&random)[kPiece],
                            const Span& copy = {}) {
  if (span.dtype == DType::f32) {
    write(span, piece, x);
    if (copy.data != nullptr) write(copy, piece, x);
    return;
  }
  std::uint16_t code[kPiece];
#pragma unroll
  for (int i = 0; i < kPiece; ++i) code[i] = ops::bf16_at_random(x[i], random[i]);
  write_halves(span, piece, code);
  if (copy.data != nullptr) write_halves(copy, piece, code);
}

// What a thread has of a piece: four elements, the bits they are rounded with, and which of them are.
struct Elements {
  float g[kPiece], w[kPiece], s0[kPiece], s1[kPiece];
  std::uint32_t weight_bits[kPiece], first_bits[kPiece], second_bits[kPiece];

  __device__ void draw(base::RandomKey key, bool average) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const ops::RoundingBits bits = ops::rounding_bits(key, g[i], w[i], average ? s0[i] : 0.0f);
      weight_bits[i] = bits.weight;
      first_bits[i] = bits.first;
      second_bits[i] = bits.second;
    }
  }
};

template <typename Rule>
__global__ void __launch_bounds__(kThreads) update_tensors(const __grid_constant__ Batch<Rule> batch) {
  if (batch.scalars->skip != 0) return;
  int tensor = 0;
  while (blockIdx.x >= batch.end_block[tensor]) ++tensor;
  const Operands& a = batch.operands[tensor];
  const Rule& rule = batch.rules[tensor];
  const std::uint32_t first_block = tensor == 0 ? 0 : batch.end_block[tensor - 1];
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.x - first_block) * kBlockElements;
  const int slots = rule.slots();
  const bool split = a.low.data != nullptr;
  const bool rounds = (a.weight.dtype != DType::f32 && !split) || a.slot[0].dtype != DType::f32 || a.slot[1].dtype != DType::f32;

  Piece pieces[kPieces];
  Raw gradient_raw[kPieces], weight_raw[kPieces], slot0_raw[kPieces] = {}, slot1_raw[kPieces] = {}, low_raw[kPieces] = {};
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    pieces[k] = piece_at(base + (k * kThreads + static_cast<int>(threadIdx.x)) * kPiece, a.elements, a.aligned);
    gradient_raw[k] = fetch(a.gradient, pieces[k]);
    weight_raw[k] = fetch(a.weight, pieces[k]);
    if (slots > 0) slot0_raw[k] = fetch(a.slot[0], pieces[k]);
    if (slots > 1) slot1_raw[k] = fetch(a.slot[1], pieces[k]);
    if (split) low_raw[k] = fetch(a.low, pieces[k]);
  }
  __shared__ typename Rule::Step step;
  __shared__ base::RandomKey key;
  if (threadIdx.x == 0) {
    step = rule.step_of(*batch.scalars);
    if (rounds) key = ops::rounding_key(*batch.scalars);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    if (pieces[k].count == 0) continue;
    Elements e;
    decode(gradient_raw[k], a.gradient.dtype, e.g);
    decode(slot0_raw[k], a.slot[0].dtype, e.s0);
    decode(slot1_raw[k], a.slot[1].dtype, e.s1);
    if (split) {
      join(weight_raw[k], low_raw[k], e.w, e.s1);
    } else {
      decode(weight_raw[k], a.weight.dtype, e.w);
    }
    if (rounds) e.draw(key, slots > 0);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) rule.update(step, e.g[i], e.w[i], e.s0[i], e.s1[i]);
    if (split) {
      write_split(a, pieces[k], e.w, e.s1);
    } else {
      write_state(a.weight, pieces[k], e.w, e.weight_bits, a.copy);
    }
    if (slots > 0) write_state(a.slot[0], pieces[k], e.s0, e.first_bits);
    if (slots > 1) write_state(a.slot[1], pieces[k], e.s1, e.second_bits);
  }
}

// ---- from calls to launches

AdamRule rule_of(const ops::AdamUpdate& op) {
  return {{.beta1 = op.beta1, .beta2 = op.beta2, .weight_decay = op.weight_decay, .decoupled = op.decoupled}, static_cast<float>(op.eps)};
}

SgdRule rule_of(const ops::SgdUpdate& op) { return {static_cast<float>(op.momentum), static_cast<float>(op.weight_decay)}; }

int slots_of(const ops::AdamUpdate&) { return 2; }
int slots_of(const ops::SgdUpdate& op) { return op.momentum != 0.0 ? 1 : 0; }

Span low_of(const ops::AdamUpdate& op, const Call& call) { return op.split ? span_of(call.outputs[3]) : Span{}; }
Span low_of(const ops::SgdUpdate&, const Call&) { return {}; }

template <typename Attributes>
Operands operands_of(const Call& call) {
  const auto& op = std::get<Attributes>(call.op);
  Operands a;
  a.gradient = span_of(call.inputs[1]);
  a.weight = span_of(call.outputs[0]);
  for (int slot = 0; slot < slots_of(op); ++slot) a.slot[slot] = span_of(call.outputs[static_cast<std::size_t>(slot) + 1]);
  a.low = low_of(op, call);
  if (op.copy) a.copy = span_of(call.outputs.back());
  a.elements = call.inputs[1].type.shape.elements();
  a.aligned = are_aligned(a.gradient, a.weight, a.slot[0], a.slot[1], a.low, a.copy);
  return a;
}

// All calls have the same step scalars, as all updates of a program have.
template <typename Attributes>
void update_many(std::span<const Call> calls, cudaStream_t stream) {
  using Rule = decltype(rule_of(std::declval<Attributes>()));
  while (!calls.empty()) {
    const std::span<const Call> now = calls.first(std::min<std::size_t>(calls.size(), kMostTensors));
    calls = calls.subspan(now.size());
    Batch<Rule> batch;
    batch.scalars = now.front().inputs[0].template as<const ops::StepScalars>();
    std::uint32_t blocks = 0;
    for (const Call& call : now) {
      batch.operands[batch.tensors] = operands_of<Attributes>(call);
      batch.rules[batch.tensors] = rule_of(std::get<Attributes>(call.op));
      blocks += blocks_for(batch.operands[batch.tensors].elements, kBlockElements);
      batch.end_block[batch.tensors++] = blocks;
    }
    if (blocks > 0) update_tensors<<<blocks, kThreads, 0, stream>>>(batch);
    check_launch("update");
  }
}

template <typename Attributes>
void update_one(const Call& call, cudaStream_t stream) {
  update_many<Attributes>({&call, 1}, stream);
}

constexpr Kernel kKernels[] = {
    {.op = "adam_update",
     .name = "adam_update.pieces",
     .refusal = refuse_other_floats,
     .launch = update_one<ops::AdamUpdate>,
     .launch_many = update_many<ops::AdamUpdate>},
    {.op = "sgd_update",
     .name = "sgd_update.pieces",
     .refusal = refuse_other_floats,
     .launch = update_one<ops::SgdUpdate>,
     .launch_many = update_many<ops::SgdUpdate>},
};

}  // namespace

std::span<const Kernel> optimizer_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

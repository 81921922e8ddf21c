// Updates by any rule (ops/optim) of many tensors in one launch: each operand passes through memory once, and clip factor, loss scale and
// the verdict to skip are read from the step scalars. Small tensors cost their bytes, not a launch each. State in leaner forms
// (ops/forms) is f32 in registers.
#include <algorithm>
#include <array>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/table.h"
#include "ops/forms/bf16.h"
#include "ops/forms/random_rounding.h"
#include "ops/forms/split.h"
#include "ops/op.h"
#include "ops/optim/all.h"
#include "ops/step_rules.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kPieces = 2;  // that a thread has under way
constexpr int kBlockElements = kThreads * kPieces * kPiece;
constexpr int kMostTensors = 24;  // of a launch: its arguments stay under 4 KB

// Of a tensor to be updated.
struct Operands {
  Span gradient;
  Span weight;
  Span state[ops::kMostRuleStates];
  Span low;   // of a split weight; null: it is not split
  Span copy;  // null: none
  // What the prelude made: of a rule with a matrix the step, else sums. Null: the rule has none, or does without.
  Span direction;
  const ops::ParameterSums* sums = nullptr;
  std::int64_t elements = 0;
  bool aligned = false;
};

// A rule's settings for one tensor. No more than it has: arguments of a launch are few.
template <typename Rule>
struct Settings {
  double numbers[Rule::kNumbers.size() + 1];
  double rate;
  double weight_decay;

  // What is the same for all elements of a step is worked out once a block.
  __device__ typename Rule::template Step<float> step_of(const ops::StepScalars& scalars,
                                                         [[maybe_unused]] const ops::ParameterSums* sums = nullptr) const {
    ops::RuleNumbers all{};
    constexpr int kCount = static_cast<int>(Rule::kNumbers.size());
    for (int index = 0; index < kCount; ++index) all[static_cast<std::size_t>(index)] = numbers[index];
    auto step = Rule::template step<float>(ops::rule_inputs(all, rate, weight_decay, scalars));
    if constexpr (ops::detail::prelude_of<Rule>() == ops::Prelude::sums) {
      if (sums == nullptr) return step;
      double values[Rule::kSums];
      for (std::size_t sum = 0; sum < Rule::kSums; ++sum) values[sum] = sums->sum[sum].value();
      Rule::scale(step, values);
    }
    return step;
  }
};

template <typename Rule>
struct Batch {
  const ops::StepScalars* scalars = nullptr;
  int tensors = 0;
  std::uint32_t end_block[kMostTensors];  // of each tensor
  Operands operands[kMostTensors];
  Settings<Rule> settings[kMostTensors];
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
  float g[kPiece], w[kPiece], s[ops::kMostRuleStates][kPiece];
  std::uint32_t weight_bits[kPiece], first_bits[kPiece], second_bits[kPiece];

  __device__ void draw(base::RandomKey key, bool average) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const ops::RoundingBits bits = ops::rounding_bits(key, g[i], w[i], average ? s[0][i] : 0.0f);
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
  const std::uint32_t first_block = tensor == 0 ? 0 : batch.end_block[tensor - 1];
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.x - first_block) * kBlockElements;
  constexpr int kStates = static_cast<int>(Rule::kStates.size());
  const bool split = a.low.data != nullptr;
  bool rounds = a.weight.dtype != DType::f32 && !split;
#pragma unroll
  for (int state = 0; state < kStates; ++state) rounds = rounds || a.state[state].dtype != DType::f32;

  Piece pieces[kPieces];
  Raw gradient_raw[kPieces], weight_raw[kPieces], state_raw[ops::kMostRuleStates][kPieces] = {}, low_raw[kPieces] = {},
                                                  direction_raw[kPieces] = {};
  constexpr bool kDirected = ops::detail::prelude_of<Rule>() == ops::Prelude::matrix;
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    pieces[k] = piece_at(base + (k * kThreads + static_cast<int>(threadIdx.x)) * kPiece, a.elements, a.aligned);
    gradient_raw[k] = fetch(a.gradient, pieces[k]);
    weight_raw[k] = fetch(a.weight, pieces[k]);
#pragma unroll
    for (int state = 0; state < kStates; ++state) state_raw[state][k] = fetch(a.state[state], pieces[k]);
    if (split) low_raw[k] = fetch(a.low, pieces[k]);
    if constexpr (kDirected) direction_raw[k] = fetch(a.direction, pieces[k]);
  }
  __shared__ typename Rule::template Step<float> step;
  __shared__ base::RandomKey key;
  if (threadIdx.x == 0) {
    step = batch.settings[tensor].step_of(*batch.scalars, a.sums);
    if (rounds) key = ops::rounding_key(*batch.scalars);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    if (pieces[k].count == 0) continue;
    Elements e;
    decode(gradient_raw[k], a.gradient.dtype, e.g);
#pragma unroll
    for (int state = 0; state < kStates; ++state) decode(state_raw[state][k], a.state[state].dtype, e.s[state]);
    if (split) {
      join(weight_raw[k], low_raw[k], e.w, e.s[ops::kSignState]);
    } else {
      decode(weight_raw[k], a.weight.dtype, e.w);
    }
    if (rounds) e.draw(key, kStates > 0);
    float direction[kPiece] = {};
    if constexpr (kDirected) decode(direction_raw[k], DType::f32, direction);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      float states[ops::kMostRuleStates] = {e.s[0][i], e.s[1][i]};
      ops::detail::update_element<Rule, float>(step, e.g[i], e.w[i], states, direction[i]);
      e.s[0][i] = states[0];
      e.s[1][i] = states[1];
    }
    if (split) {
      write_split(a, pieces[k], e.w, e.s[ops::kSignState]);
    } else {
      write_state(a.weight, pieces[k], e.w, e.weight_bits, a.copy);
    }
    if (kStates > 0) write_state(a.state[0], pieces[k], e.s[0], e.first_bits);
    if (kStates > 1) write_state(a.state[1], pieces[k], e.s[1], e.second_bits);
  }
}

// ---- from calls to launches

Operands operands_of(const Call& call) {
  const auto& op = std::get<ops::Update>(call.op);
  Operands a;
  a.gradient = span_of(call.inputs[1]);
  a.weight = span_of(call.outputs[0]);
  for (std::size_t state = 0; state < op.states(); ++state) a.state[state] = span_of(call.outputs[state + 1]);
  if (op.split) a.low = span_of(call.outputs[op.low()]);
  if (op.copy) a.copy = span_of(call.outputs.back());
  if (op.prelude) {
    const Tensor& prelude = call.inputs[op.prelude_operand()];
    if (op.rule->prelude == ops::Prelude::matrix) {
      a.direction = span_of(prelude);
    } else {
      a.sums = prelude.as<const ops::ParameterSums>();
    }
  }
  a.elements = call.inputs[1].type.shape.elements();
  a.aligned = are_aligned(a.gradient, a.weight, a.state[0], a.state[1], a.low, a.copy, a.direction);
  return a;
}

template <typename Rule>
Settings<Rule> settings_of(const ops::Update& op) {
  Settings<Rule> settings{};
  std::copy_n(op.numbers.begin(), Rule::kNumbers.size(), settings.numbers);
  settings.rate = op.rate;
  settings.weight_decay = op.weight_decay;
  return settings;
}

// All calls have the same step scalars, as all updates of a program have, and the same rule.
template <typename Rule>
void launch_updates(std::span<const Call> calls, cudaStream_t stream) {
  while (!calls.empty()) {
    const std::span<const Call> now = calls.first(std::min<std::size_t>(calls.size(), kMostTensors));
    calls = calls.subspan(now.size());
    Batch<Rule> batch;
    batch.scalars = now.front().inputs[0].template as<const ops::StepScalars>();
    std::uint32_t blocks = 0;
    for (const Call& call : now) {
      batch.operands[batch.tensors] = operands_of(call);
      batch.settings[batch.tensors] = settings_of<Rule>(std::get<ops::Update>(call.op));
      blocks += blocks_for(batch.operands[batch.tensors].elements, kBlockElements);
      batch.end_block[batch.tensors++] = blocks;
    }
    if (blocks > 0) update_tensors<<<blocks, kThreads, 0, stream>>>(batch);
    check_launch("update");
  }
}

template <typename Rule>
void launch_prelude(const Call& call, cudaStream_t stream);

// The rules that there is device code of, by name: rows made elsewhere have none.
struct RuleLaunch {
  std::string_view name;
  void (*launch)(std::span<const Call> calls, cudaStream_t stream);
  void (*prelude)(const Call& call, cudaStream_t stream);
};

template <typename... Rules>
constexpr std::array<RuleLaunch, sizeof...(Rules)> launches_of(ops::RuleList<Rules...>) {
  return {RuleLaunch{Rules::kName, launch_updates<Rules>, launch_prelude<Rules>}...};
}

constexpr auto kLaunches = launches_of(ops::AllRules{});

const RuleLaunch* launch_of(const ops::UpdateRule& rule) {
  const auto* found =
      std::find_if(std::begin(kLaunches), std::end(kLaunches), [&](const RuleLaunch& row) { return row.name == rule.name; });
  return found == kLaunches.end() ? nullptr : &*found;
}

std::optional<std::string> refuse_update(const ops::KernelQuery& query) {
  if (std::optional<std::string> refusal = refuse_other_floats(query)) return refusal;
  if (std::get<ops::Update>(query.op).sends) return "what an update sends leaves the host for a device";
  const ops::UpdateRule& rule = *std::get<ops::Update>(query.op).rule;
  if (launch_of(rule) != nullptr) return std::nullopt;
  return fmt::format("there is no device code for the rule {}", rule.name);
}

void update_many(std::span<const Call> calls, cudaStream_t stream) {
  const auto rule_of = [](const Call& call) { return std::get<ops::Update>(call.op).rule; };
  while (!calls.empty()) {
    const ops::UpdateRule* rule = rule_of(calls.front());
    const auto end = std::find_if(calls.begin(), calls.end(), [&](const Call& call) { return rule_of(call) != rule; });
    const auto alike = static_cast<std::size_t>(end - calls.begin());
    launch_of(*rule)->launch(calls.first(alike), stream);
    calls = calls.subspan(alike);
  }
}

void update_one(const Call& call, cudaStream_t stream) { update_many({&call, 1}, stream); }

// ---- preludes

struct Preluded {
  Operands operands;  // of what is read
  std::int64_t counted = 0;
  ops::ParameterSums* sums = nullptr;
  float* direction = nullptr;
};

Preluded preluded(const Call& call) {
  const auto& op = std::get<ops::UpdatePrelude>(call.op);
  Preluded p;
  Operands& a = p.operands;
  const auto kept = call.inputs.subspan(ops::Update::kFirstKept);
  a.gradient = span_of(call.inputs[1]);
  a.weight = span_of(kept[0]);
  for (std::size_t state = 0; state < op.update.states(); ++state) a.state[state] = span_of(kept[state + 1]);
  if (op.update.split) a.low = span_of(kept[op.update.low()]);
  a.elements = call.inputs[1].type.shape.elements();
  a.aligned = are_aligned(a.gradient, a.weight, a.state[0], a.state[1], a.low);
  p.counted = op.counted < 0 ? a.elements : std::clamp<std::int64_t>(op.counted - call.shard_place * op.shard, 0, a.elements);
  if (op.is_sum()) {
    p.sums = call.outputs[0].as<ops::ParameterSums>();
  } else {
    p.direction = call.outputs[0].as<float>();
  }
  return p;
}

// Reads a piece as the update does.
template <typename Rule>
__device__ void read_elements(const Operands& a, const Piece& piece, Elements& e) {
  constexpr int kStates = static_cast<int>(Rule::kStates.size());
  read(a.gradient, piece, e.g);
#pragma unroll
  for (int state = 0; state < kStates; ++state) read(a.state[state], piece, e.s[state]);
  if (a.low.data != nullptr) {
    join(fetch(a.weight, piece), fetch(a.low, piece), e.w, e.s[ops::kSignState]);
  } else {
    read(a.weight, piece, e.w);
  }
}

template <typename Rule>
__global__ void __launch_bounds__(kThreads)
    make_directions(const __grid_constant__ Preluded p, const ops::StepScalars* scalars, const __grid_constant__ Settings<Rule> settings) {
  __shared__ typename Rule::template Step<float> step;
  if (threadIdx.x == 0) step = settings.step_of(*scalars);
  __syncthreads();
  const Piece piece = piece_at((blockIdx.x * std::int64_t{kThreads} + threadIdx.x) * kPiece, p.operands.elements, p.operands.aligned);
  if (piece.count == 0) return;
  Elements e;
  read_elements<Rule>(p.operands, piece, e);
  for (int i = 0; i < piece.count; ++i) {
    const float states[ops::kMostRuleStates] = {e.s[0][i], e.s[1][i]};
    p.direction[piece.first + i] = Rule::direction(step, e.g[i], e.w[i], states);
  }
}

// Block sums in the order of scalars.cu: four lanes a block of kSumBlock elements, each with 4 of the 16 partials.
constexpr int kSumLanes = 4;
constexpr int kSumBlocksAtOnce = kThreads / kSumLanes;

template <typename Rule>
__global__ void __launch_bounds__(kThreads)
    sum_parameter(const __grid_constant__ Preluded p, const ops::StepScalars* scalars, const __grid_constant__ Settings<Rule> settings) {
  __shared__ typename Rule::template Step<float> step;
  if (threadIdx.x == 0) step = settings.step_of(*scalars);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kSumBlocksAtOnce + threadIdx.x / kSumLanes;
  const std::int64_t first = block * ops::kSumBlock;
  const std::int64_t counted = p.counted;
  float partial[Rule::kSums][kPiece] = {};
  for (std::int64_t at = first + lane * kPiece; at < first + ops::kSumBlock && at < counted; at += kSumLanes * kPiece) {
    const Piece piece = piece_at(at, counted, p.operands.aligned);
    Elements e;
    read_elements<Rule>(p.operands, piece, e);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i >= piece.count) continue;
      float states[ops::kMostRuleStates] = {e.s[0][i], e.s[1][i]};
      float terms[Rule::kSums];
      Rule::summands(step, e.g[i], e.w[i], states, terms);
      for (std::size_t sum = 0; sum < Rule::kSums; ++sum) partial[sum][i] = __fadd_rn(partial[sum][i], terms[sum]);
    }
  }
  for (std::size_t sum = 0; sum < Rule::kSums; ++sum) {
    float* own = partial[sum];
    for (int i = 0; i < kPiece; ++i) own[i] = __fadd_rn(own[i], __shfl_down_sync(kAllLanes, own[i], 2, kSumLanes));
    for (int i = 0; i < kPiece; ++i) own[i] = __fadd_rn(own[i], __shfl_down_sync(kAllLanes, own[i], 1, kSumLanes));
    if (lane != 0 || first >= counted) continue;
    base::ExactSum whole;
    whole.add(__fadd_rn(__fadd_rn(own[0], own[2]), __fadd_rn(own[1], own[3])));
    base::ExactSum& to = p.sums->sum[sum];
    for (std::size_t limb = 0; limb < base::ExactSum::kLimbs; ++limb) add_whole(&to.limbs[limb], whole.limbs[limb]);
    add_whole(&to.not_finite, whole.not_finite);
  }
}

template <typename Rule>
void launch_prelude(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::UpdatePrelude>(call.op);
  const Preluded p = preluded(call);
  const auto* scalars = call.inputs[0].as<const ops::StepScalars>();
  if constexpr (ops::detail::prelude_of<Rule>() == ops::Prelude::matrix) {
    const std::uint32_t blocks = blocks_for(p.operands.elements, kThreads * kPiece);
    if (blocks > 0) make_directions<Rule><<<blocks, kThreads, 0, stream>>>(p, scalars, settings_of<Rule>(op.update));
  } else if constexpr (ops::detail::prelude_of<Rule>() == ops::Prelude::sums) {
    if (!op.into) check(cudaMemsetAsync(p.sums, 0, sizeof *p.sums, stream), "sums over a parameter");
    const std::uint32_t blocks = blocks_for(p.counted, kSumBlocksAtOnce * ops::kSumBlock);
    if (blocks > 0) sum_parameter<Rule><<<blocks, kThreads, 0, stream>>>(p, scalars, settings_of<Rule>(op.update));
  }
  check_launch("prelude of an update");
}

std::optional<std::string> refuse_prelude(const ops::KernelQuery& query) {
  if (std::optional<std::string> refusal = refuse_other_floats(query)) return refusal;
  const ops::UpdateRule& rule = *std::get<ops::UpdatePrelude>(query.op).update.rule;
  if (launch_of(rule) != nullptr) return std::nullopt;
  return fmt::format("there is no device code for the rule {}", rule.name);
}

void prelude(const Call& call, cudaStream_t stream) {
  launch_of(*std::get<ops::UpdatePrelude>(call.op).update.rule)->prelude(call, stream);
}

__global__ void add_members(const ops::ParameterSums* members, std::int64_t count, ops::ParameterSums* to) {
  ops::ParameterSums all{};
  for (std::int64_t member = 0; member < count; ++member) {
    for (std::size_t sum = 0; sum < ops::kMostRuleSums; ++sum) all.sum[sum] += members[member].sum[sum];
  }
  *to = all;
}

void merge_sums(const Call& call, cudaStream_t stream) {
  add_members<<<1, 1, 0, stream>>>(call.inputs[0].as<const ops::ParameterSums>(), std::get<ops::MergeSums>(call.op).members,
                                   call.outputs[0].as<ops::ParameterSums>());
  check_launch("sums of several ranks");
}

constexpr Kernel kKernels[] = {
    {.op = "update_prelude", .name = "update_prelude.pieces", .refusal = refuse_prelude, .launch = prelude},
    {.op = "merge_sums", .name = "merge_sums.device", .launch = merge_sums},
    {.op = "update", .name = "update.pieces", .refusal = refuse_update, .launch = update_one, .launch_many = update_many},
};

}  // namespace

std::span<const Kernel> optimizer_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

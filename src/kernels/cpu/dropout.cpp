// Dropout and the residual sum with dropout. Philox runs a vector of counters at a time: each counter word sits in the
// low half of a 64-bit lane, where one widening multiply gives both halves of a product; what stands in the upper
// halves in between is never read.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "ops/op.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t kLanes = hn::MaxLanes(Tag());

#if HWY_TARGET == HWY_SCALAR

void multipliers_of_elements(const DropoutMask& mask, std::uint32_t sample, std::uint64_t first, std::int64_t count, float* multipliers) {
  base::RandomBlock words{};
  for (std::int64_t index = 0; index < count; ++index) {
    const std::uint64_t element = first + static_cast<std::uint64_t>(index);
    const std::uint64_t block = element / 4;
    if (index == 0 || element % 4 == 0) {
      words = base::philox({static_cast<std::uint32_t>(block), sample, mask.step, static_cast<std::uint32_t>(block >> 32)}, mask.key);
    }
    multipliers[index] = words[element % 4] < mask.threshold ? 0.0f : mask.scale;
  }
}

#else

using WordTag = hn::RebindToUnsigned<Tag>;
using CounterTag = hn::Repartition<std::uint64_t, Tag>;
using Counters = hn::Vec<CounterTag>;
constexpr std::int64_t kCounters = hn::MaxLanes(CounterTag());
constexpr std::int64_t kDrawn = 4 * kCounters;  // words of one draw: two vectors

HWY_INLINE Counters wide_product(Counters a, std::uint32_t multiplier) {
  const WordTag dw;
  return hn::MulEven(hn::BitCast(dw, a), hn::Set(dw, multiplier));
}

// Which counter of a draw each lane takes: such that interleaving the words pairwise leaves them in memory order, the
// first vector of them from the even lanes, the second from the odd ones.
HWY_INLINE Counters counter_order() {
  const CounterTag d;
  HWY_ALIGN std::uint64_t order[kCounters];
  for (std::int64_t lane = 0; lane < kCounters; ++lane) order[lane] = static_cast<std::uint64_t>(lane % 2 * (kCounters / 2) + lane / 2);
  return hn::Load(d, order);
}

struct Words {
  hn::Vec<WordTag> first;
  hn::Vec<WordTag> second;
};

HWY_INLINE Words draw(const DropoutMask& mask, std::uint32_t sample, Counters block) {
  const CounterTag d;
  const WordTag dw;
  Counters c0 = block;
  Counters c1 = hn::Set(d, sample);
  Counters c2 = hn::Set(d, mask.step);
  Counters c3 = hn::ShiftRight<32>(block);
  std::uint32_t key0 = mask.key[0];
  std::uint32_t key1 = mask.key[1];
  for (int round = 0; round < base::kPhiloxRounds; ++round) {
    const Counters product0 = wide_product(c0, base::kPhiloxMultiplier0);
    const Counters product1 = wide_product(c2, base::kPhiloxMultiplier1);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1), hn::Set(d, key0));
    c1 = product1;
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3), hn::Set(d, key1));
    c3 = product0;
    key0 += base::kPhiloxWeyl0;
    key1 += base::kPhiloxWeyl1;
  }
  const Counters low = hn::Set(d, 0xFFFFFFFFu);
  const Counters pair0 = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
  const Counters pair1 = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
  return {hn::BitCast(dw, hn::InterleaveLower(d, pair0, pair1)), hn::BitCast(dw, hn::InterleaveUpper(d, pair0, pair1))};
}

HWY_INLINE Vector multiplier_of(hn::Vec<WordTag> words, hn::Vec<WordTag> threshold, Vector scale) {
  return hn::IfThenZeroElse(hn::RebindMask(Tag(), hn::Lt(words, threshold)), scale);
}

void multipliers_of_elements(const DropoutMask& mask, std::uint32_t sample, std::uint64_t first, std::int64_t count, float* multipliers) {
  const Tag d;
  const Vector scale = hn::Set(d, mask.scale);
  const hn::Vec<WordTag> threshold = hn::Set(WordTag(), mask.threshold);
  const Counters step = hn::Set(CounterTag(), static_cast<std::uint64_t>(kCounters));
  Counters block = hn::Add(hn::Set(CounterTag(), first / 4), counter_order());
  std::int64_t done = -static_cast<std::int64_t>(first % 4);  // a draw starts at a whole block, maybe before the first element
  for (; done < count; done += kDrawn, block = hn::Add(block, step)) {
    const Words words = draw(mask, sample, block);
    const Vector lower = multiplier_of(words.first, threshold, scale);
    const Vector upper = multiplier_of(words.second, threshold, scale);
    if (done >= 0 && done + kDrawn <= count) {
      store(d, lower, multipliers + done);
      store(d, upper, multipliers + done + kLanes);
    } else {
      HWY_ALIGN float drawn[kDrawn];
      hn::Store(lower, d, drawn);
      hn::Store(upper, d, drawn + kLanes);
      const std::int64_t from = std::max<std::int64_t>(0, -done);
      const std::int64_t to = std::min(kDrawn, count - done);
      std::copy(drawn + from, drawn + to, multipliers + done + from);
    }
  }
}

#endif

void multiply_block(const float* x, const float* multipliers, float* y, std::int64_t count) {
  const Tag d;
  std::int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) store(d, hn::Mul(load(d, x + index), load(d, multipliers + index)), y + index);
  for (; index < count; ++index) y[index] = x[index] * multipliers[index];
}

// multipliers null: x + r.
void residual_block(const float* x, const float* r, const float* multipliers, float* y, std::int64_t count) {
  const Tag d;
  std::int64_t index = 0;
  if (multipliers == nullptr) {
    for (; index + kLanes <= count; index += kLanes) store(d, hn::Add(load(d, x + index), load(d, r + index)), y + index);
    for (; index < count; ++index) y[index] = x[index] + r[index];
    return;
  }
  for (; index + kLanes <= count; index += kLanes) {
    store(d, hn::MulAdd(load(d, r + index), load(d, multipliers + index), load(d, x + index)), y + index);
  }
  const auto rest = static_cast<std::size_t>(count - index);
  if (rest == 0) return;
  const Vector dropped = hn::MulAdd(load_n(d, r + index, rest), load_n(d, multipliers + index, rest), load_n(d, x + index, rest));
  store_n(d, dropped, y + index, rest);
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(multipliers_of_elements);
HWY_EXPORT(multiply_block);
HWY_EXPORT(residual_block);

DropoutMask dropout_mask(double rate, std::uint64_t site, const ops::StepScalars& scalars) {
  return {.key = base::random_key(scalars.seed, site),
          .step = scalars.step,
          .threshold = static_cast<std::uint32_t>(rate * 4294967296.0),
          .scale = static_cast<float>(1.0 / (1.0 - rate))};
}

void dropout_multipliers(const DropoutMask& mask, std::uint32_t sample, std::uint64_t first, std::int64_t count, float* multipliers) {
  HWY_DYNAMIC_DISPATCH(multipliers_of_elements)(mask, sample, first, count, multipliers);
}

void add_residual(const float* x, const float* r, const float* multipliers, float* sum, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(residual_block)(x, r, multipliers, sum, count);
}

namespace {

constexpr std::int64_t kGrain = 8 * kBlock;

// Calls body(first, count, sample, element): blocks that lie within one sample, `element` being the first's place in it.
template <typename Attributes, typename Body>
void for_each_sample_block(const Call& call, const Attributes& op, const std::int32_t* samples, const Body& body) {
  const base::Shape& shape = call.inputs[0].type.shape;
  const std::int64_t elements = shape.elements();
  const std::int64_t per_sample = op.sample_rows > 0 ? op.sample_rows * shape[-1] : elements / shape[0];
  const std::int64_t before = op.first_row * shape[-1];  // elements of the micro-batch that other ranks have
  parallel_ranges(call.threads, elements, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t first = begin; first < end;) {
      const std::int64_t element = (before + first) % per_sample;
      const std::int64_t count = std::min({kBlock, end - first, per_sample - element});
      body(first, count, static_cast<std::uint32_t>(samples[(before + first) / per_sample]), static_cast<std::uint64_t>(element));
      first += count;
    }
  });
}

void run_dropout(const Call& call) {
  const auto& op = std::get<ops::Dropout>(call.op);
  const Tensor& x = call.inputs[0];
  const Tensor& y = call.outputs[0];
  if (x.type.shape.elements() == 0) return;
  const DropoutMask mask = dropout_mask(op.rate, op.site, *call.inputs[2].as<const ops::StepScalars>());
  for_each_sample_block(call, op, call.inputs[1].as<const std::int32_t>(),
                        [&](std::int64_t first, std::int64_t count, std::uint32_t sample, std::uint64_t element) {
                          alignas(64) float multipliers[kBlock], buffer[kBlock];
                          dropout_multipliers(mask, sample, element, count, multipliers);
                          const float* values = read_f32(x, first, count, buffer);
                          float* made = target_f32(y, first, buffer);
                          HWY_DYNAMIC_DISPATCH(multiply_block)(values, multipliers, made, count);
                          finish_f32(y, first, count, made);
                        });
}

void sum_block(const Call& call, std::int64_t first, std::int64_t count, const float* multipliers) {
  alignas(64) float x_buffer[kBlock], r_buffer[kBlock];
  const float* x = read_f32(call.inputs[0], first, count, x_buffer);
  const float* r = read_f32(call.inputs[1], first, count, r_buffer);
  float* sum = target_f32(call.outputs[0], first, x_buffer);
  add_residual(x, r, multipliers, sum, count);
  finish_f32(call.outputs[0], first, count, sum);
}

// What is taken back is added with its multipliers negated.
template <typename Sum>
void run_sum(const Call& call) {
  constexpr bool kBack = std::is_same_v<Sum, ops::Subtract>;
  const auto& op = std::get<Sum>(call.op);
  const Tensor& x = call.inputs[0];
  if (x.type.shape.elements() == 0) return;
  if (op.rate <= 0.0) {
    alignas(64) float back[kBlock];
    std::fill_n(back, kBlock, -1.0f);
    parallel_ranges(call.threads, x.type.shape.elements(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t first = begin; first < end; first += kBlock)
        sum_block(call, first, std::min(kBlock, end - first), kBack ? back : nullptr);
    });
    return;
  }
  DropoutMask mask = dropout_mask(op.rate, op.site, *call.inputs[3].as<const ops::StepScalars>());
  if (kBack) mask.scale = -mask.scale;
  for_each_sample_block(call, op, call.inputs[2].as<const std::int32_t>(),
                        [&](std::int64_t first, std::int64_t count, std::uint32_t sample, std::uint64_t element) {
                          alignas(64) float multipliers[kBlock];
                          dropout_multipliers(mask, sample, element, count, multipliers);
                          sum_block(call, first, count, multipliers);
                        });
}

constexpr std::array kKernels{
    Kernel{.op = "dropout", .name = "dropout.simd", .refusal = refuse_other_floats, .run = run_dropout},
    Kernel{.op = "residual", .name = "residual.simd", .refusal = refuse_other_floats, .run = run_sum<ops::Residual>},
    Kernel{.op = "subtract", .name = "subtract.simd", .refusal = refuse_other_floats, .run = run_sum<ops::Subtract>},
};

}  // namespace

std::span<const Kernel> dropout_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif

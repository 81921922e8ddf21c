// The softmax of a grid, its gradient, and the dropout of its probabilities. A vector holds one key's number for several
// queries. Included once per instruction set, hence the guard.
//
// Hidden pairs are selected away, never multiplied by zero, so that a NaN reaches only what depends on it.
#if defined(PLIMSOLL_KERNELS_CPU_ATTENTION_SOFTMAX_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLIMSOLL_KERNELS_CPU_ATTENTION_SOFTMAX_H
#undef PLIMSOLL_KERNELS_CPU_ATTENTION_SOFTMAX_H
#else
#define PLIMSOLL_KERNELS_CPU_ATTENTION_SOFTMAX_H
#endif

#include <limits>

#include "kernels/cpu/attention_product.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using attention::DropoutTile;
using attention::kPad;
using attention::SoftmaxState;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
using FloatMask = hn::Mask<FloatTag>;
using IntTag = hn::ScalableTag<std::int32_t>;
using WordTag = hn::ScalableTag<std::uint32_t>;
using WordVec = hn::Vec<WordTag>;

// 2^x to 1e-7 relative for x <= 127; 0 under -126, -inf included. NaN stays NaN.
HWY_INLINE FloatVec exp2(FloatVec x) {
  const FloatTag d;
  const auto rounding = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: leaves the nearest integer in the low bits
  const auto shifted = hn::Add(x, rounding);
  const auto r = hn::Sub(x, hn::Sub(shifted, rounding));
  auto p = hn::Set(d, 0.00015353361959569156f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.0013398875016719103f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.00961843691766262f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.055503323674201965f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.24022647738456726f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931471824645996f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const WordTag du;
  const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Set(du, 0x3F800000u));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, hn::BitCast(d, power)));
}

// Which of the queries [first, first + lanes) see key j.
HWY_INLINE FloatMask visible(const TilePair& pair, int first, int j) {
  const IntTag di;
  const auto distance = hn::Iota(di, first - j);
  const auto in_band = hn::AndNot(hn::Lt(distance, hn::Set(di, pair.band.low)), hn::Lt(distance, hn::Set(di, pair.band.high)));
  auto seen = in_band;
  if (pair.seen != nullptr) seen = hn::And(seen, hn::MaskFromVec(hn::Load(di, pair.seen + j * kTileQueries + first)));
  if (pair.query_segments != nullptr) {
    seen = hn::And(seen, hn::Eq(hn::LoadU(di, pair.query_segments + first), hn::Set(di, pair.key_segments[j])));
  }
  return hn::RebindMask(FloatTag(), seen);
}

HWY_INLINE void zero_column(float* column, int begin, int end) {
  const FloatTag d;
  for (int j = begin; j < end; ++j) hn::Store(hn::Zero(d), d, column + j * kTileQueries);
}

// One vector of queries against all keys.
template <bool kMasked>
HWY_INLINE void softmax_column(const TilePair& pair, int first, float* grid, SoftmaxState& state) {
  const FloatTag d;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const int lanes = static_cast<int>(hn::Lanes(d));
  const IndexRange seen = kMasked ? keys_of_block(pair.band, first, lanes, pair.keys) : IndexRange{0, pair.keys};
  float* column = grid + first;
  const auto old_max = hn::Load(d, state.max + first);
  auto max = old_max;
  for (int j = seen.begin; j < seen.end; ++j) {
    auto score = hn::Load(d, column + j * kTileQueries);
    if constexpr (kMasked) {
      score = hn::IfThenElse(visible(pair, first, j), score, lowest);
      hn::Store(score, d, column + j * kTileQueries);
    }
    max = hn::Max(max, score);
  }
  // A query that has seen nothing yet has no maximum to subtract.
  const auto base = hn::IfThenZeroElse(hn::Eq(max, lowest), max);
  auto sum = hn::Zero(d);
  for (int j = seen.begin; j < seen.end; ++j) {
    const auto probability = exp2(hn::Sub(hn::Load(d, column + j * kTileQueries), base));
    sum = hn::Add(sum, probability);
    const bool drops = pair.keep != nullptr;
    hn::Store(drops ? hn::Mul(probability, hn::Load(d, pair.keep + j * kTileQueries + first)) : probability, d, column + j * kTileQueries);
  }
  if constexpr (kMasked) {
    zero_column(column, 0, std::min(seen.begin, pair.keys));
    zero_column(column, std::max(seen.end, 0), pair.keys);
  }
  const auto rescale = exp2(hn::Sub(old_max, base));
  hn::Store(max, d, state.max + first);
  hn::Store(rescale, d, state.rescale + first);
  hn::Store(hn::MulAdd(hn::Load(d, state.sum + first), rescale, sum), d, state.sum + first);
}

inline void softmax(const TilePair& pair, float* grid, SoftmaxState& state) {
  const int lanes = static_cast<int>(hn::Lanes(FloatTag()));
  const bool masked = pair.masked();
  for (int first = 0; first < pair.queries; first += lanes) {
    masked ? softmax_column<true>(pair, first, grid, state) : softmax_column<false>(pair, first, grid, state);
  }
}

inline void rescale(const SoftmaxState& state, int queries, std::int64_t dim, Rows sum) {
  const FloatTag d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int i = 0; i < queries; ++i) {
    if (state.rescale[i] == 1.0f) continue;
    const auto factor = hn::Set(d, state.rescale[i]);
    float* row = sum.data + i * sum.stride;
    for (std::int64_t c = 0; c < attention::padded(dim); c += lanes) hn::Store(hn::Mul(hn::Load(d, row + c), factor), d, row + c);
  }
}

// With p the probability, f the dropout factor and g the gradient of the dropped probability p f:
// the gradient of the score is p (g f - delta), delta = sum over keys of p f g = dout . out.
template <bool kMasked>
HWY_INLINE void softmax_grad_column(const TilePair& pair, int first, const float* lse2, const float* delta, float* scores,
                                    float* gradients) {
  const FloatTag d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const IndexRange seen = kMasked ? keys_of_block(pair.band, first, lanes, pair.keys) : IndexRange{0, pair.keys};
  const auto query_lse = hn::Load(d, lse2 + first);
  const auto query_delta = hn::Load(d, delta + first);
  for (int j = seen.begin; j < seen.end; ++j) {
    float* score = scores + j * kTileQueries + first;
    float* gradient = gradients + j * kTileQueries + first;
    auto probability = exp2(hn::Sub(hn::Load(d, score), query_lse));
    auto dropped = probability;
    auto g = hn::Load(d, gradient);
    if (pair.keep != nullptr) {
      const auto factor = hn::Load(d, pair.keep + j * kTileQueries + first);
      dropped = hn::Mul(dropped, factor);
      g = hn::Mul(g, factor);
    }
    g = hn::Mul(probability, hn::Sub(g, query_delta));
    if constexpr (kMasked) {
      const auto seen_lanes = visible(pair, first, j);
      dropped = hn::IfThenElseZero(seen_lanes, dropped);
      g = hn::IfThenElseZero(seen_lanes, g);
    }
    hn::Store(dropped, d, score);
    hn::Store(g, d, gradient);
  }
  if constexpr (kMasked) {
    for (float* grid : {scores + first, gradients + first}) {
      zero_column(grid, 0, std::min(seen.begin, pair.keys));
      zero_column(grid, std::max(seen.end, 0), pair.keys);
    }
  }
}

inline void softmax_grad(const TilePair& pair, const float* lse2, const float* delta, float* scores, float* gradients) {
  const int lanes = static_cast<int>(hn::Lanes(FloatTag()));
  const bool masked = pair.masked();
  for (int first = 0; first < pair.queries; first += lanes) {
    masked ? softmax_grad_column<true>(pair, first, lse2, delta, scores, gradients)
           : softmax_grad_column<false>(pair, first, lse2, delta, scores, gradients);
  }
  // Products take keys by blocks of rows.
  const int end = static_cast<int>(attention::padded(pair.keys));
  for (int first = 0; first < pair.queries; first += lanes) {
    zero_column(scores + first, pair.keys, end);
    zero_column(gradients + first, pair.keys, end);
  }
}

// ---- dropout

// The 64-bit products of each 32-bit lane with a constant, as high and low words.
HWY_INLINE void multiply_words(WordVec a, std::uint32_t constant, WordVec& high, WordVec& low) {
  const WordTag du;
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t product = static_cast<std::uint64_t>(hn::GetLane(a)) * constant;
  high = hn::Set(du, static_cast<std::uint32_t>(product >> 32));
  low = hn::Set(du, static_cast<std::uint32_t>(product));
#else
  const hn::Repartition<std::uint64_t, WordTag> dq;
  const auto b = hn::Set(du, constant);
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(dq, a))), b);
  high = hn::OddEven(hn::BitCast(du, odd), hn::BitCast(du, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(odd)), hn::BitCast(du, even));
#endif
}

// base::philox on a vector of counters.
HWY_INLINE void philox(WordVec counter[4], base::RandomKey key) {
  const WordTag du;
  for (int round = 0; round < base::kPhiloxRounds; ++round) {
    WordVec high0, low0, high1, low1;
    multiply_words(counter[0], base::kPhiloxMultiplier0, high0, low0);
    multiply_words(counter[2], base::kPhiloxMultiplier1, high1, low1);
    counter[0] = hn::Xor(hn::Xor(high1, counter[1]), hn::Set(du, key[0]));
    counter[1] = low1;
    counter[2] = hn::Xor(hn::Xor(high0, counter[3]), hn::Set(du, key[1]));
    counter[3] = low0;
    key[0] += base::kPhiloxWeyl0;
    key[1] += base::kPhiloxWeyl1;
  }
}

// The four factors of each of `blocks` successive counters, for one vector of queries.
HWY_INLINE void draw_column(const DropoutTile& dropout, const std::uint32_t* low, const std::uint32_t* high, int blocks, float* column) {
  const FloatTag d;
  const WordTag du;
  const auto first_low = hn::LoadU(du, low);
  const auto first_high = hn::LoadU(du, high);
  const auto last_dropped = hn::Set(du, dropout.last_dropped);
  const auto factor = hn::Set(d, dropout.factor);
  for (int block = 0; block < blocks; ++block) {
    const auto block_low = hn::Add(first_low, hn::Set(du, static_cast<std::uint32_t>(block)));
    const auto carry = hn::IfThenElseZero(hn::Lt(block_low, first_low), hn::Set(du, 1));
    WordVec words[4] = {block_low, hn::Set(du, dropout.sample), hn::Set(du, dropout.step), hn::Add(first_high, carry)};
    philox(words, dropout.key);
    for (int w = 0; w < 4; ++w) {
      const auto kept = hn::RebindMask(d, hn::Gt(words[w], last_dropped));
      hn::Store(hn::IfThenElseZero(kept, factor), d, column + (4 * block + w) * kTileQueries);
    }
  }
}

// Moves each query's factors up by its phase: where within four words its first element lies.
HWY_INLINE void align_column(const std::uint32_t* phase, int keys, float* column) {
  const FloatTag d;
  const WordTag du;
  const auto phases = hn::LoadU(du, phase);
  for (int j = 0; j < keys; ++j) {
    float* row = column + j * kTileQueries;
    auto aligned = hn::Load(d, row);
    for (int p = 1; p < 4; ++p) {
      const auto here = hn::RebindMask(d, hn::Eq(phases, hn::Set(du, static_cast<std::uint32_t>(p))));
      aligned = hn::IfThenElse(here, hn::Load(d, row + p * kTileQueries), aligned);
    }
    hn::Store(aligned, d, row);
  }
}

// Keys that do not lie side by side have a counter each.
inline void draw_apart(const DropoutTile& dropout, int queries, int keys, float* keep) {
  for (int j = 0; j < keys; ++j) {
    for (int i = 0; i < queries; ++i) {
      const std::uint64_t element =
          dropout.first_element + static_cast<std::uint64_t>(i) * dropout.query_stride + static_cast<std::uint64_t>(j) * dropout.key_stride;
      const base::RandomBlock counter{static_cast<std::uint32_t>(element / 4), dropout.sample, dropout.step,
                                      static_cast<std::uint32_t>(element / 4 >> 32)};
      keep[j * kTileQueries + i] = base::philox(counter, dropout.key)[element % 4] > dropout.last_dropped ? dropout.factor : 0.0f;
    }
  }
}

inline void draw_keep(const DropoutTile& dropout, int queries, int keys, float* keep) {
  if (dropout.key_stride != 1) return draw_apart(dropout, queries, keys, keep);
  std::uint32_t low[kTileQueries];
  std::uint32_t high[kTileQueries];
  std::uint32_t phase[kTileQueries];
  std::uint32_t any_phase = 0;
  for (int i = 0; i < queries; ++i) {
    const std::uint64_t element = dropout.first_element + static_cast<std::uint64_t>(i) * dropout.query_stride;
    low[i] = static_cast<std::uint32_t>(element / 4);
    high[i] = static_cast<std::uint32_t>(element / 4 >> 32);
    phase[i] = static_cast<std::uint32_t>(element % 4);
    any_phase |= phase[i];
  }
  const int blocks = (keys + (any_phase != 0 ? 3 : 0) + 3) / 4;
  const int lanes = static_cast<int>(hn::Lanes(FloatTag()));
  for (int first = 0; first < queries; first += lanes) {
    draw_column(dropout, low + first, high + first, blocks, keep + first);
    if (any_phase != 0) align_column(phase + first, keys, keep + first);
  }
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// Every function is a loop over whole vectors and one step over what is left, which reads and writes no element beyond.
#include "kernels/cpu/state_forms.h"

#include "kernels/cpu/simd_targets.h"
#include "ops/forms/bf16.h"
#include "ops/forms/random_rounding.h"
#include "ops/forms/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/state_forms.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
using Words = U32Tag<Floats>;
using Halves = U16Tag<Floats>;
using FloatVector = hn::Vec<Floats>;
using WordVector = hn::Vec<Words>;

// Calls body(Whole or Rest, first element, how many lanes). Two types, so that the loop has a body of its own without the detour.
struct Whole {};
struct Rest {};

template <typename Body>
HWY_INLINE void for_each_vector(std::int64_t count, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  std::int64_t index = 0;
  for (; index + lanes <= count; index += lanes) body(Whole{}, index, static_cast<std::size_t>(lanes));
  if (index < count) body(Rest{}, index, static_cast<std::size_t>(count - index));
}

template <class D, typename T>
HWY_INLINE hn::Vec<D> take(Whole, D d, const T* from, std::size_t) {
  return hn::LoadU(d, from);
}

template <class D, typename T>
HWY_INLINE hn::Vec<D> take(Rest, D d, const T* from, std::size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(d)] = {};
  for (std::size_t lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
  return hn::Load(d, lanes);
}

template <class D, typename T>
HWY_INLINE void put(Whole, D d, hn::Vec<D> vector, T* to, std::size_t) {
  hn::StoreU(vector, d, to);
}

template <class D, typename T>
HWY_INLINE void put(Rest, D d, hn::Vec<D> vector, T* to, std::size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(vector, d, lanes);
  for (std::size_t lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
}

HWY_INLINE WordVector mixed_words(WordVector word) {
  const Words d;
  word = hn::Mul(hn::Xor(word, hn::ShiftRight<16>(word)), hn::Set(d, ops::kMixFirst));
  word = hn::Mul(hn::Xor(word, hn::ShiftRight<13>(word)), hn::Set(d, ops::kMixSecond));
  return hn::Xor(word, hn::ShiftRight<16>(word));
}

// The two zeros are one.
HWY_INLINE WordVector number_bits(FloatVector value) { return hn::BitCast(Words(), hn::Add(value, hn::Zero(Floats()))); }

void draw_words(base::RandomKey key, const float* gradient, const float* weight, const float* first, std::uint32_t* words,
                std::int64_t count) {
  const Floats d;
  const Words u;
  const WordVector key0 = hn::Set(u, key[0]);
  const WordVector key1 = hn::Set(u, key[1]);
  for_each_vector(count, [&](auto part, std::int64_t index, std::size_t lanes) HWY_ATTR {
    WordVector word = mixed_words(hn::Xor(number_bits(take(part, d, gradient + index, lanes)), key0));
    word = hn::Xor(hn::Xor(word, key1), number_bits(take(part, d, weight + index, lanes)));
    if (first != nullptr) word = hn::Xor(word, hn::RotateRight<16>(number_bits(take(part, d, first + index, lanes))));
    put(part, u, mixed_words(word), words + index, lanes);
  });
}

template <RoundedState kState>
HWY_INLINE WordVector random_halves(WordVector word) {
  if constexpr (kState == RoundedState::weight) return hn::And(word, hn::Set(Words(), 0xFFFFu));
  if constexpr (kState == RoundedState::first) return hn::ShiftRight<16>(word);
  return hn::ShiftRight<16>(hn::Mul(word, hn::Set(Words(), ops::kMixThird)));
}

template <RoundedState kState>
HWY_INLINE void narrow_words(const float* values, const std::uint32_t* words, std::uint16_t* to, std::int64_t count) {
  const Words u;
  const WordVector exponent = hn::Set(u, 0x7F800000u);
  for_each_vector(count, [&](auto part, std::int64_t index, std::size_t lanes) HWY_ATTR {
    const WordVector bits = hn::BitCast(u, take(part, Floats(), values + index, lanes));
    const auto special = hn::Eq(hn::And(bits, exponent), exponent);
    const auto nan = hn::Gt(hn::And(bits, hn::Set(u, 0x7FFFFFFFu)), exponent);
    const WordVector random = random_halves<kState>(take(part, u, words + index, lanes));
    WordVector rounded = hn::Add(bits, hn::IfThenZeroElse(special, random));
    rounded = hn::Or(rounded, hn::IfThenElseZero(nan, hn::Set(u, 0x400000u)));
    put(part, Halves(), hn::TruncateTo(Halves(), hn::ShiftRight<16>(rounded)), to + index, lanes);
  });
}

void narrow_weight(const float* values, const std::uint32_t* words, std::uint16_t* to, std::int64_t count) {
  narrow_words<RoundedState::weight>(values, words, to, count);
}
void narrow_first(const float* values, const std::uint32_t* words, std::uint16_t* to, std::int64_t count) {
  narrow_words<RoundedState::first>(values, words, to, count);
}
void narrow_second(const float* values, const std::uint32_t* words, std::uint16_t* to, std::int64_t count) {
  narrow_words<RoundedState::second>(values, words, to, count);
}

void join(const std::uint16_t* high, const std::uint16_t* low, float* v, float* weight, std::int64_t count) {
  const Floats d;
  const Words u;
  for_each_vector(count, [&](auto part, std::int64_t index, std::size_t lanes) HWY_ATTR {
    const FloatVector signs = take(part, d, v + index, lanes);
    const WordVector down = hn::ShiftRight<31>(hn::BitCast(u, signs));
    const WordVector below = hn::PromoteTo(u, take(part, Halves(), low + index, lanes));
    const WordVector above = hn::PromoteTo(u, take(part, Halves(), high + index, lanes));
    const WordVector rounded_up = hn::ShiftRight<16>(hn::Sub(hn::Add(below, hn::Set(u, 0x8000u)), down));
    const WordVector bits = hn::Or(hn::ShiftLeft<16>(hn::Sub(above, rounded_up)), below);
    put(part, d, hn::BitCast(d, bits), weight + index, lanes);
    put(part, d, hn::Abs(signs), v + index, lanes);
  });
}

void split(const float* weight, std::uint16_t* high, std::uint16_t* low, float* v, std::int64_t count) {
  const Floats d;
  const Words u;
  const WordVector one = hn::Set(u, 1u);
  const WordVector infinity = hn::Set(u, 0x7F800000u);
  for_each_vector(count, [&](auto part, std::int64_t index, std::size_t lanes) HWY_ATTR {
    const WordVector bits = hn::BitCast(u, take(part, d, weight + index, lanes));
    const WordVector odd = hn::And(hn::ShiftRight<16>(bits), one);
    const auto nan = hn::Gt(hn::And(bits, hn::Set(u, 0x7FFFFFFFu)), infinity);
    const WordVector rounded = hn::Add(hn::Add(bits, hn::Set(u, 0x7FFFu)), odd);
    const WordVector above = hn::ShiftRight<16>(hn::IfThenElse(nan, hn::Or(bits, hn::Set(u, 0x400000u)), rounded));
    const WordVector below = hn::And(bits, hn::Set(u, 0xFFFFu));
    put(part, Halves(), hn::TruncateTo(Halves(), above), high + index, lanes);
    put(part, Halves(), hn::TruncateTo(Halves(), below), low + index, lanes);
    // Equal only where the bits below are 0x8000 and the one above them is zero.
    const auto down = hn::Eq(hn::And(bits, hn::Set(u, 0x1FFFFu)), hn::Set(u, 0x8000u));
    const WordVector sign = hn::IfThenElseZero(down, hn::Set(u, 0x80000000u));
    put(part, d, hn::BitCast(d, hn::Or(hn::BitCast(u, take(part, d, v + index, lanes)), sign)), v + index, lanes);
  });
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(draw_words);
HWY_EXPORT(narrow_weight);
HWY_EXPORT(narrow_first);
HWY_EXPORT(narrow_second);
HWY_EXPORT(join);
HWY_EXPORT(split);

void draw_rounding(base::RandomKey key, const float* gradient, const float* weight, const float* first, std::uint32_t* words,
                   std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(draw_words)(key, gradient, weight, first, words, count);
}

void narrow_at_random(const float* values, const std::uint32_t* words, RoundedState state, std::uint16_t* to, std::int64_t count) {
  switch (state) {
    case RoundedState::weight: return HWY_DYNAMIC_DISPATCH(narrow_weight)(values, words, to, count);
    case RoundedState::first: return HWY_DYNAMIC_DISPATCH(narrow_first)(values, words, to, count);
    case RoundedState::second: return HWY_DYNAMIC_DISPATCH(narrow_second)(values, words, to, count);
  }
}

void join_halves(const std::uint16_t* high, const std::uint16_t* low, float* v, float* weight, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(join)(high, low, v, weight, count);
}

void split_halves(const float* weight, std::uint16_t* high, std::uint16_t* low, float* v, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(split)(weight, high, low, v, count);
}

}  // namespace plimsoll::kernels::cpu
#endif

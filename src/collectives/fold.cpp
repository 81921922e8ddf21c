#include "collectives/fold.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "collectives/half.h"

namespace plimsoll::collectives {

namespace {

using base::DType;

// Elements folded at a time: the accumulator and one operand of each member stay in the first-level cache.
constexpr std::int64_t kTile = 1024;

float larger_of(float a, float b) { return b > a || b != b ? b : a; }  // a NaN stays

struct F32 {
  using Stored = float;
  using Wide = float;
  static float larger(float a, float b) { return larger_of(a, b); }
};
struct Bf16 {
  using Stored = std::uint16_t;
  using Wide = float;
  static void widen(const Stored* from, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = base::f32_from_bf16(from[i]);
  }
  static void narrow(const float* from, std::int64_t count, Stored* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = base::bf16_from_f32(from[i]);
  }
  static float larger(float a, float b) { return larger_of(a, b); }
};
struct F16 {
  using Stored = std::uint16_t;
  using Wide = float;
  static void widen(const Stored* from, std::int64_t count, float* to) { widen_f16(from, count, to); }
  static void narrow(const float* from, std::int64_t count, Stored* to) { narrow_f16(from, count, to); }
  static float larger(float a, float b) { return larger_of(a, b); }
};
// Whole numbers wrap, so they are added as unsigned ones: the overflow of a signed one is undefined.
template <typename Number>
struct Whole {
  using Stored = std::make_unsigned_t<Number>;
  using Wide = Stored;
  static Stored larger(Stored a, Stored b) { return static_cast<Number>(b) > static_cast<Number>(a) ? b : a; }
};

// Buffers of bytes need not be aligned for their elements: memcpy in tiles costs nothing and is defined.
template <typename Type>
void load_tile(const std::byte* from, std::int64_t count, typename Type::Wide* to) {
  using Stored = typename Type::Stored;
  if constexpr (std::is_same_v<Stored, typename Type::Wide>) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Stored));
  } else {
    std::array<Stored, kTile> raw;
    std::memcpy(raw.data(), from, static_cast<std::size_t>(count) * sizeof(Stored));
    Type::widen(raw.data(), count, to);
  }
}

template <typename Type>
void add_tile(const std::byte* from, std::int64_t count, Reduction reduction, typename Type::Wide* sum) {
  using Wide = typename Type::Wide;
  alignas(64) std::array<Wide, kTile> operand;
  load_tile<Type>(from, count, operand.data());
  if (reduction == Reduction::max) {
    for (std::int64_t i = 0; i < count; ++i) sum[i] = Type::larger(sum[i], operand[static_cast<std::size_t>(i)]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<Wide>(sum[i] + operand[static_cast<std::size_t>(i)]);
  }
}

template <typename Type>
void store_tile(const typename Type::Wide* sum, std::int64_t count, std::int64_t offset, std::span<std::byte* const> out) {
  using Stored = typename Type::Stored;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Stored);
  std::array<Stored, kTile> raw;
  const void* stored = sum;
  if constexpr (!std::is_same_v<Stored, typename Type::Wide>) {
    Type::narrow(sum, count, raw.data());
    stored = raw.data();
  }
  for (std::byte* to : out) std::memcpy(to + offset, stored, bytes);
}

template <typename Type>
void fold_as(const Fold& work) {
  using Wide = typename Type::Wide;
  alignas(64) std::array<Wide, kTile> sum;
  for (std::int64_t first = 0; first < work.count; first += kTile) {
    const std::int64_t count = std::min(kTile, work.count - first);
    const std::int64_t offset = first * static_cast<std::int64_t>(sizeof(typename Type::Stored));
    load_tile<Type>(work.in.front() + offset, count, sum.data());
    for (const std::byte* in : work.in.subspan(1)) add_tile<Type>(in + offset, count, work.reduction, sum.data());
    if constexpr (std::is_same_v<Wide, float>) {
      if (work.reduction == Reduction::mean) {
        const float inverse = 1.0f / static_cast<float>(work.members);
        for (std::int64_t i = 0; i < count; ++i) sum[static_cast<std::size_t>(i)] *= inverse;
      }
    }
    store_tile<Type>(sum.data(), count, offset, work.out);
  }
}

}  // namespace

void fold(const Fold& work) noexcept {
  switch (work.dtype) {
    case DType::f32: return fold_as<F32>(work);
    case DType::bf16: return fold_as<Bf16>(work);
    case DType::f16: return fold_as<F16>(work);
    case DType::i32: return fold_as<Whole<std::int32_t>>(work);
    case DType::i64: return fold_as<Whole<std::int64_t>>(work);
    default: return fold_as<Whole<std::uint8_t>>(work);
  }
}

}  // namespace plimsoll::collectives

// A sum of floats without rounding: a fixed-point number wide enough for every f32, so the order of additions does
// not matter and shards may be summed anywhere, then added as integers.
//
// Limb k holds a signed multiple of 2^(32 k - 172); a float touches at most two limbs. The lowest exponent is that of
// the smallest float, 2^-149, written with a 24-bit mantissa. Carries are left in the 64-bit limbs and settled by
// value(), which allows 2^30 additions in between. Values that are not finite are counted apart.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "base/host_device.h"

namespace plimsoll::base {

struct ExactSum {
  static constexpr int kLimbs = 10;
  static constexpr int kLowestExponent = -172;

  std::array<std::int64_t, kLimbs> limbs{};
  std::int64_t not_finite = 0;

  PLIMSOLL_HOST_DEVICE void add(float term) {
    if (!std::isfinite(term)) {
      ++not_finite;
      return;
    }
    if (term == 0.0f) return;
    int exponent = 0;
    const auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(term, &exponent), 24));  // |mantissa| < 2^24
    const int shift = exponent - 24 - kLowestExponent;
    const std::int64_t sign = mantissa < 0 ? -1 : 1;
    const std::uint64_t spread = static_cast<std::uint64_t>(sign * mantissa) << (shift % 32);
    limbs[static_cast<std::size_t>(shift / 32)] += sign * static_cast<std::int64_t>(spread & 0xFFFFFFFFu);
    limbs[static_cast<std::size_t>(shift / 32) + 1] += sign * static_cast<std::int64_t>(spread >> 32);
  }

  PLIMSOLL_HOST_DEVICE ExactSum& operator+=(const ExactSum& other) {
    for (std::size_t limb = 0; limb < kLimbs; ++limb) limbs[limb] += other.limbs[limb];
    not_finite += other.not_finite;
    return *this;
  }

  // The sum rounded to double; NaN when a term was not finite.
  PLIMSOLL_HOST_DEVICE double value() const {
    if (not_finite != 0) return std::nan("");
    std::array<std::int64_t, kLimbs> settled = limbs;
    for (std::size_t limb = 0; limb + 1 < kLimbs; ++limb) {
      const std::int64_t carry = settled[limb] >> 32;
      settled[limb] -= carry * (std::int64_t{1} << 32);
      settled[limb + 1] += carry;
    }
    double sum = 0.0;
    for (std::size_t limb = kLimbs; limb-- > 0;) {
      sum += std::ldexp(static_cast<double>(settled[limb]), static_cast<int>(32 * limb) + kLowestExponent);
    }
    return sum;
  }

  bool operator==(const ExactSum&) const = default;
};

}  // namespace plimsoll::base

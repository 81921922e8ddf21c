#include "collectives/half.h"

#include "base/dtype.h"
#include "base/processor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plimsoll::collectives {

namespace {

#if defined(__x86_64__)
constexpr std::int64_t kLanes = 8;

bool by_instruction() { return base::processor().isa >= base::Isa::avx2; }

// Whole groups of lanes; how many elements that were.
__attribute__((target("avx,f16c"))) std::int64_t widen_lanes(const std::uint16_t* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  return i;
}

__attribute__((target("avx,f16c"))) std::int64_t narrow_lanes(const float* from, std::int64_t count, std::uint16_t* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
  }
  return i;
}
#else
bool by_instruction() { return false; }
std::int64_t widen_lanes(const std::uint16_t*, std::int64_t, float*) { return 0; }
std::int64_t narrow_lanes(const float*, std::int64_t, std::uint16_t*) { return 0; }
#endif

}  // namespace

void widen_f16(const std::uint16_t* from, std::int64_t count, float* to) {
  for (std::int64_t i = by_instruction() ? widen_lanes(from, count, to) : 0; i < count; ++i) to[i] = base::f32_from_f16(from[i]);
}

void narrow_f16(const float* from, std::int64_t count, std::uint16_t* to) {
  for (std::int64_t i = by_instruction() ? narrow_lanes(from, count, to) : 0; i < count; ++i) to[i] = base::f16_from_f32(from[i]);
}

}  // namespace plimsoll::collectives

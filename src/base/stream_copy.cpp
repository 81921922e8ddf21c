#include "base/stream_copy.h"

#include <algorithm>
#include <cstdint>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace plimsoll::base {

#ifdef __SSE2__

void stream_copy(std::span<const std::byte> from, std::byte* to) {
  constexpr std::size_t kLine = 64;
  const std::size_t head = std::min((kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine, from.size());
  const std::size_t end = head + (from.size() - head) / kLine * kLine;
  std::copy_n(from.data(), head, to);
  for (std::size_t at = head; at < end; at += kLine) {
    const auto* const source = reinterpret_cast<const __m128i*>(from.data() + at);
    auto* const target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);  // a whole line together: only then is it not read before
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();  // whoever is told that the copy is done sees it
  std::copy_n(from.data() + end, from.size() - end, to + end);
}

#else

void stream_copy(std::span<const std::byte> from, std::byte* to) { std::copy_n(from.data(), from.size(), to); }

#endif

}  // namespace plimsoll::base

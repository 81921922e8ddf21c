#include "checkpoint/block_sum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/crc32c.h"
#include "base/processor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plimsoll::checkpoint {

namespace {

std::uint32_t portable_sum(std::span<const std::byte> data, std::uint32_t before) {
  return base::crc32c(std::string_view(reinterpret_cast<const char*>(data.data()), data.size()), before);
}

#if defined(__x86_64__)

constexpr std::size_t kLane = 4096;  // bytes

// What `crc` becomes when kLane zero bytes follow it: a linear map over bits, looked up byte by byte.
class LaneShift {
 public:
  constexpr LaneShift() {
    std::array<std::uint32_t, 32> column{};  // images of the single bits
    for (std::uint32_t bit = 0; bit < 32; ++bit) {
      std::uint32_t crc = 1u << bit;
      for (int step = 0; step < 8; ++step) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);  // one zero byte
      column[bit] = crc;
    }
    for (std::size_t bytes = 1; bytes < kLane; bytes *= 2) {  // the map for 2n bytes is the map for n applied twice
      std::array<std::uint32_t, 32> twice{};
      for (std::size_t bit = 0; bit < 32; ++bit) twice[bit] = apply(column, column[bit]);
      column = twice;
    }
    for (std::uint32_t place = 0; place < 4; ++place) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) table_[place][byte] = apply(column, byte << (8 * place));
    }
  }

  std::uint32_t operator()(std::uint32_t crc) const {
    return table_[0][crc & 0xFFu] ^ table_[1][crc >> 8 & 0xFFu] ^ table_[2][crc >> 16 & 0xFFu] ^ table_[3][crc >> 24];
  }

 private:
  static constexpr std::uint32_t apply(const std::array<std::uint32_t, 32>& column, std::uint32_t bits) {
    std::uint32_t sum = 0;
    for (std::size_t bit = 0; bit < 32; ++bit) sum ^= (bits >> bit & 1u) != 0 ? column[bit] : 0u;
    return sum;
  }

  std::array<std::array<std::uint32_t, 256>, 4> table_{};
};

static_assert((kLane & (kLane - 1)) == 0, "the map is made by doubling");
constexpr LaneShift kShift;

std::uint64_t word_at(const std::byte* data) {
  std::uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

// Goes on from `crc`, the sum's state after what came before; returns the state.
__attribute__((target("sse4.2"))) std::uint32_t continue_sum(std::uint64_t crc, const std::byte* at, std::size_t left) {
  for (; left >= 3 * kLane; left -= 3 * kLane, at += 3 * kLane) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      crc = _mm_crc32_u64(crc, word_at(at + i));
      second = _mm_crc32_u64(second, word_at(at + kLane + i));
      third = _mm_crc32_u64(third, word_at(at + 2 * kLane + i));
    }
    crc = kShift(kShift(static_cast<std::uint32_t>(crc)) ^ static_cast<std::uint32_t>(second)) ^ static_cast<std::uint32_t>(third);
  }
  for (; left >= 8; left -= 8, at += 8) crc = _mm_crc32_u64(crc, word_at(at));
  auto tail = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++at) tail = _mm_crc32_u8(tail, static_cast<std::uint8_t>(*at));
  return tail;
}

// x^n modulo the polynomial, the coefficient of x^0 in the highest bit.
constexpr std::uint32_t power_of_x(int n) {
  std::uint32_t power = 1u << 31;
  for (; n > 0; --n) power = (power >> 1) ^ ((power & 1u) != 0 ? 0x82F63B78u : 0u);
  return power;
}

constexpr std::size_t kLine = 64;   // bytes: a register
constexpr std::size_t kWide = 256;  // four of them

// Where what is summed goes as well. Past the caches: whoever reads it next is not here.
struct Nowhere {
  void store(std::size_t, const __m512i&) {}
  void finish(std::size_t, std::span<const std::byte>) {}
};
struct To {
  std::byte* to;  // a multiple of kLine

  __attribute__((target("avx512f"))) void store(std::size_t at, const __m512i& data) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), data);
  }
  void finish(std::size_t at, std::span<const std::byte> rest) {
    std::memcpy(to + at, rest.data(), rest.size());
    _mm_sfence();  // other threads may be told that it is there
  }
};

// Carry-less products move 256 bytes over the 256 that follow them, which leaves the sum as it is; the last 256 are summed
// the ordinary way.
template <typename Out>
__attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq"))) std::uint32_t wide_sum(std::uint32_t crc, std::span<const std::byte> data,
                                                                                   Out out) {
  constexpr auto kLow = static_cast<long long>(power_of_x(8 * kWide + 31));
  constexpr auto kHigh = static_cast<long long>(power_of_x(8 * kWide - 33));
  const __m512i shift = _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
  __m512i part[4];
  for (std::size_t i = 0; i < 4; ++i) {
    part[i] = _mm512_loadu_si512(data.data() + 64 * i);
    out.store(64 * i, part[i]);
  }
  part[0] = _mm512_xor_si512(part[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  std::size_t at = kWide;
  for (; at + kWide <= data.size(); at += kWide) {
    for (std::size_t i = 0; i < 4; ++i) {
      const __m512i next = _mm512_loadu_si512(data.data() + at + 64 * i);
      out.store(at + 64 * i, next);
      const __m512i low = _mm512_clmulepi64_epi128(part[i], shift, 0x00);
      const __m512i high = _mm512_clmulepi64_epi128(part[i], shift, 0x11);
      part[i] = _mm512_ternarylogic_epi64(low, high, next, 0x96);  // all three xor-ed
    }
  }
  alignas(64) std::byte rest[kWide];
  for (int i = 0; i < 4; ++i) _mm512_store_si512(rest + 64 * i, part[i]);
  out.finish(at, data.subspan(at));
  return continue_sum(continue_sum(0, rest, kWide), data.data() + at, data.size() - at);
}

bool sums_wide(std::span<const std::byte> data) {
  static const bool wide =
      base::processor().isa >= base::Isa::avx512 && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
  return wide && data.size() >= 2 * kWide;
}

#endif

}  // namespace

std::uint32_t block_sum(std::span<const std::byte> data, std::uint32_t before) {
#if defined(__x86_64__)
  if (sums_wide(data)) return ~wide_sum(~before, data, Nowhere{});
  if (__builtin_cpu_supports("sse4.2")) return ~continue_sum(~before, data.data(), data.size());
#endif
  return portable_sum(data, before);
}

std::uint32_t copy_and_sum(std::span<const std::byte> from, std::byte* to, std::uint32_t before) {
  const auto piece = [&](std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from.data(), bytes);
    before = block_sum({to, bytes}, before);
    from = from.subspan(bytes);
    to += bytes;
  };
#if defined(__x86_64__)
  if (sums_wide(from)) piece(-reinterpret_cast<std::uintptr_t>(to) % kLine);
  if (sums_wide(from)) return ~wide_sum(~before, from, To{to});
#endif
  constexpr std::size_t kPiece = std::size_t{32} << 10;  // still in the processor's cache when it is summed
  while (!from.empty()) piece(std::min(kPiece, from.size()));
  return before;
}

}  // namespace plimsoll::checkpoint

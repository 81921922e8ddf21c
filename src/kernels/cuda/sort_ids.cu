#include "kernels/cuda/sort_ids.cuh"

#include <bit>
#include <utility>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/elements.cuh"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kMostBits = 9;  // of a digit: vocabularies up to a quarter million take two passes
constexpr int kMostDigits = 1 << kMostBits;
constexpr int kWarps = kSortTile / 32;

// How the bits of a key are cut: as few passes as digits of kMostBits need, and then digits as small as that allows.
struct Digits {
  int passes;
  int bits;
};

Digits digits_for(std::int64_t rows) {
  const int bits = std::bit_width(static_cast<std::uint64_t>(rows));  // keys go up to `rows`
  const int passes = (bits + kMostBits - 1) / kMostBits;
  return {passes, (bits + passes - 1) / passes};
}

// What a pass reads: the ids in the first one, keys and positions in the others.
struct Tokens {
  const std::int32_t* ids = nullptr;
  const std::uint32_t* keys = nullptr;
  const std::int32_t* positions = nullptr;
  std::int64_t count = 0;
  std::int64_t rows = 0;

  __device__ std::uint32_t key(std::int64_t token) const {
    if (ids == nullptr) return keys[token];
    const std::int32_t id = ids[token];
    return static_cast<std::uint32_t>(id >= 0 && id < rows ? id : rows);
  }
  __device__ std::int32_t position(std::int64_t token) const {
    return ids == nullptr ? positions[token] : static_cast<std::int32_t>(token);
  }
};

// counts: (digits, tiles).
__global__ void __launch_bounds__(kSortTile) count_digits(Tokens tokens, int shift, int digits, std::uint32_t* counts) {
  __shared__ std::uint32_t shared[kMostDigits];
  if (threadIdx.x < digits) shared[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kSortTile + threadIdx.x;
  if (token < tokens.count) atomicAdd(&shared[tokens.key(token) >> shift & (digits - 1)], 1u);
  __syncthreads();
  if (threadIdx.x < digits) counts[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = shared[threadIdx.x];
}

// Each count becomes the sum of those before it. One block.
__global__ void __launch_bounds__(1024) sum_before(std::uint32_t* counts, std::int64_t count) {
  constexpr int kEach = 4;
  __shared__ std::uint32_t shared[32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  std::uint32_t before = 0;
  for (std::int64_t first = 0; first < count; first += 1024 * kEach) {
    const std::int64_t own = first + threadIdx.x * kEach;
    std::uint32_t values[kEach];
    std::uint32_t sum = 0;
    for (int i = 0; i < kEach; ++i) {
      values[i] = own + i < count ? counts[own + i] : 0;
      sum += values[i];
    }
    std::uint32_t upto = sum;
    for (int apart = 1; apart < 32; apart *= 2) {
      const std::uint32_t other = __shfl_up_sync(0xFFFFFFFFu, upto, apart);
      if (lane >= apart) upto += other;
    }
    if (lane == 31) shared[warp] = upto;
    __syncthreads();
    std::uint32_t total = 0;
    std::uint32_t of_warps = 0;
    for (int other = 0; other < 32; ++other) {
      if (other < warp) of_warps += shared[other];
      total += shared[other];
    }
    std::uint32_t place = before + of_warps + upto - sum;
    for (int i = 0; i < kEach; ++i) {
      if (own + i < count) counts[own + i] = place;
      place += values[i];
    }
    before += total;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kSortTile)
    move_tokens(Tokens tokens, int shift, int digits, const std::uint32_t* places, std::uint32_t* keys_to, std::int32_t* positions_to) {
  __shared__ std::uint16_t of_warp[kWarps][kMostDigits];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int index = static_cast<int>(threadIdx.x); index < kWarps * kMostDigits; index += kSortTile) (&of_warp[0][0])[index] = 0;
  __syncthreads();
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kSortTile + threadIdx.x;
  const bool live = token < tokens.count;
  const std::uint32_t key = live ? tokens.key(token) : 0;
  const std::uint32_t digit = live ? key >> shift & (digits - 1) : kMostDigits;
  const std::uint32_t same = __match_any_sync(0xFFFFFFFFu, digit);
  const int rank = __popc(same & ((1u << lane) - 1));
  if (live && rank == 0) of_warp[warp][digit] = static_cast<std::uint16_t>(__popc(same));
  __syncthreads();
  if (threadIdx.x < digits) {
    std::uint32_t before = 0;
    for (int other = 0; other < kWarps; ++other) {
      const std::uint32_t here = of_warp[other][threadIdx.x];
      of_warp[other][threadIdx.x] = static_cast<std::uint16_t>(before);
      before += here;
    }
  }
  __syncthreads();
  if (!live) return;
  const std::uint32_t place = places[static_cast<std::int64_t>(digit) * gridDim.x + blockIdx.x] + of_warp[warp][digit] + rank;
  keys_to[place] = key;
  positions_to[place] = tokens.position(token);
}

}  // namespace

SortScratch::SortScratch(Workspace& workspace, std::int64_t tokens, std::int64_t rows) {
  for (int side = 0; side < 2; ++side) {
    keys[side] = workspace.take<std::uint32_t>(tokens);
    positions[side] = workspace.take<std::int32_t>(tokens);
  }
  counts = workspace.take<std::uint32_t>((std::int64_t{1} << digits_for(rows).bits) * ((tokens + kSortTile - 1) / kSortTile));
}

SortedIds sort_ids(const SortScratch& scratch, const std::int32_t* ids, std::int64_t tokens, std::int64_t rows, cudaStream_t stream) {
  const Digits cut = digits_for(rows);
  const int digits = 1 << cut.bits;
  const unsigned tiles = blocks_for(tokens, kSortTile);
  Tokens from{.ids = ids, .count = tokens, .rows = rows};
  for (int pass = 0; pass < cut.passes; ++pass) {
    const int shift = pass * cut.bits;
    const int side = pass % 2;
    count_digits<<<tiles, kSortTile, 0, stream>>>(from, shift, digits, scratch.counts);
    sum_before<<<1, 1024, 0, stream>>>(scratch.counts, static_cast<std::int64_t>(digits) * tiles);
    move_tokens<<<tiles, kSortTile, 0, stream>>>(from, shift, digits, scratch.counts, scratch.keys[side], scratch.positions[side]);
    from = {.ids = nullptr, .keys = scratch.keys[side], .positions = scratch.positions[side], .count = tokens, .rows = rows};
  }
  check_launch("sort of ids");
  return {from.keys, from.positions};
}

}  // namespace plimsoll::kernels::cuda

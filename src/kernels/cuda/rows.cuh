// Rows in registers: a group of kThreads threads holds a row, each thread kVectors pieces of 16 bytes, a group apart. What a kernel
// needs of a row it reads once; sums over the row go through shuffles and, in groups of several warps, through shared memory.
// Sums are taken in a fixed order, so the same row gives the same bits.
#pragma once

#include <cstdint>

#include "kernels/cuda/pieces.cuh"

namespace plimsoll::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// Over kLanes neighbouring lanes (a power of two); all of them get the sum.
template <int kLanes = kWarp>
__device__ __forceinline__ float lanes_sum(float value) {
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
  return value;
}

// Over a group; all of its threads get the sum. `shared` has a float for each warp of the block and may not be used again before the
// next barrier after this call. With several warps in a group this is itself a barrier: all threads of the block must come.
template <int kThreads>
__device__ __forceinline__ float group_sum(float value, float* shared) {
  if constexpr (kThreads <= kWarp) {
    return lanes_sum<kThreads>(value);
  } else {
    constexpr int kWarps = kThreads / kWarp;
    value = lanes_sum(value);
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
    __syncthreads();
    const float* sums = shared + threadIdx.x / kThreads * kWarps;
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total += sums[warp];
    return total;
  }
}

template <int kThreads_, int kVectors_>
struct RowShape {
  static constexpr int kThreads = kThreads_;  // of a group
  static constexpr int kVectors = kVectors_;  // 16-byte pieces of each thread
  static constexpr int kBlock = kThreads > 256 ? kThreads : 256;
  static constexpr int kRows = kBlock / kThreads;  // of a block at once
};

// How many 16-byte pieces a row has if a kernel can hold it so; 0: it is too wide, or its rows do not start at 16 bytes.
inline int row_vectors(std::int64_t width, DType dtype) {
  constexpr std::int64_t kMost = 512 * 4;
  const std::int64_t per = 16 / base::size_of(dtype);
  return width % per == 0 && width / per <= kMost ? static_cast<int>(width / per) : 0;
}

// Calls launch(RowShape<..>()) with a shape that holds `vectors` pieces. `lean` kernels keep sums beside the row and take fewer
// pieces a thread.
template <bool lean, typename Launch>
void with_row_shape(int vectors, Launch&& launch) {
  constexpr int kMost = lean ? 3 : 4;
  if (vectors <= 32) return launch(RowShape<32, 1>());
  if (vectors <= 64) return launch(RowShape<32, 2>());
  if (vectors <= 96) return launch(RowShape<32, 3>());
  if constexpr (!lean) {
    if (vectors <= 128) return launch(RowShape<32, 4>());
  } else {
    if (vectors <= 128) return launch(RowShape<128, 1>());
  }
  if (vectors <= 256) return launch(RowShape<128, 2>());
  if (vectors <= 384) return launch(RowShape<128, 3>());
  if constexpr (kMost == 4) {
    if (vectors <= 512) return launch(RowShape<128, 4>());
  } else {
    if (vectors <= 512) return launch(RowShape<512, 1>());
  }
  if (vectors <= 1024) return launch(RowShape<512, 2>());
  if (vectors <= 1536) return launch(RowShape<512, 3>());
  launch(RowShape<512, 4>());
}

}  // namespace plimsoll::kernels::cuda

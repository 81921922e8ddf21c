// Tiles of attention on tensor cores: their sizes, their ways into shared memory and out of registers, and the products and sums over them.
//
// Thread l of a warp has, of a tile of 16 x 8, the elements (l / 4, 2 (l % 4)), the one right of it, and those eight rows below.
#pragma once

#include "kernels/cuda/attention_tiles.cuh"

namespace plimsoll::kernels::cuda {

inline constexpr int kRows = kTileRows;
inline constexpr int kWarpRows = 16;
inline constexpr int kThreads = 128;
inline constexpr int kPad = 8;  // elements: eight rows below one another then lie in different banks

// Sizes by the head's: larger ones have shorter tiles, so that all stays in registers.
template <int kDim>
struct Form {
  static constexpr int kLoop = kDim == 64 ? 64 : 32;  // of the other side, at once
  static constexpr int kTiles = kLoop / 8;            // of scores, side by side
  static constexpr int kParts = kDim / 8;             // of a result, side by side
  static constexpr int kStride = kDim + kPad;
  static constexpr int kRowTile = kRows * kStride;  // elements
  static constexpr int kLoopTile = kLoop * kStride;
  static constexpr int kForward = 2 * (kRowTile + 4 * kLoopTile);  // bytes
  static constexpr int kBackwardQuery = 2 * (2 * kRowTile + 4 * kLoopTile);
  static constexpr int kBackwardKey = kBackwardQuery + 4 * 4 * kLoop;
};

__device__ __forceinline__ int lane_of() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp_row() { return static_cast<int>(threadIdx.x) / 32 * kWarpRows; }

template <typename T>
__device__ __forceinline__ unsigned shared_address(const T* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

// Four 8 x 8 matrices; a thread names the row l % 8 of matrix l / 8.
template <typename T>
__device__ __forceinline__ void load_matrices(const T* row, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
template <typename T>
__device__ __forceinline__ void load_transposed(const T* row, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// sum += a b, a of 16 x 16, b of 16 x 8.
template <typename T>
__device__ __forceinline__ void multiply_add(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <typename T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const T two[2] = {from_f32<T>(low), from_f32<T>(high)};
  std::uint32_t packed;
  memcpy(&packed, two, sizeof packed);
  return packed;
}

// Rows of heads on their way to shared memory, `count` of kCount; the others, and what is beyond `dim`, become zeros.
template <int kDim, int kCount, typename T>
__device__ __forceinline__ void fetch(const T* from, std::int64_t stride, std::int64_t count, int dim, T* to) {
  constexpr int kChunks = kDim / 8;  // of 16 bytes
#pragma unroll
  for (int n = 0; n < kCount * kChunks / kThreads; ++n) {
    const int chunk = n * kThreads + static_cast<int>(threadIdx.x);
    const int row = chunk / kChunks;
    const int d = chunk % kChunks * 8;
    const bool there = row < count && d < dim;
    const T* source = there ? from + row * stride + d : from;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to + row * (kDim + kPad) + d)), "l"(source),
                 "r"(there ? 16 : 0)
                 : "memory");
  }
}
__device__ __forceinline__ void end_of_fetch() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All fetches but the last one have arrived.
__device__ __forceinline__ void wait_for_fetch(bool one_is_ahead) {
  if (one_is_ahead) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  }
}

// s = rows loop^T, over the elements of heads; `rows` are the warp's sixteen.
template <int kDim, typename T>
__device__ __forceinline__ void scores(const T* rows, const T* loop, float (&s)[Form<kDim>::kTiles][4]) {
  constexpr int kStride = Form<kDim>::kStride;
  const int lane = lane_of();
#pragma unroll
  for (auto& tile : s)
#pragma unroll
    for (float& value : tile) value = 0.0f;
#pragma unroll
  for (int d = 0; d < kDim; d += 16) {
    std::uint32_t a[4];
    load_matrices(rows + lane % 16 * kStride + d + lane / 16 * 8, a);
#pragma unroll
    for (int pair = 0; pair < Form<kDim>::kTiles / 2; ++pair) {
      std::uint32_t b[4];
      load_matrices(loop + (16 * pair + lane % 8 + lane / 16 * 8) * kStride + d + lane / 8 % 2 * 8, b);
      multiply_add<T>(s[2 * pair], a, b[0], b[1]);
      multiply_add<T>(s[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// out += weights loop, over the other side.
template <int kDim, typename T>
__device__ __forceinline__ void add_products(const float (&weights)[Form<kDim>::kTiles][4], const T* loop,
                                             float (&out)[Form<kDim>::kParts][4]) {
  constexpr int kStride = Form<kDim>::kStride;
  const int lane = lane_of();
#pragma unroll
  for (int step = 0; step < Form<kDim>::kTiles / 2; ++step) {
    const float(&left)[4] = weights[2 * step];
    const float(&right)[4] = weights[2 * step + 1];
    const std::uint32_t a[4] = {pack<T>(left[0], left[1]), pack<T>(left[2], left[3]), pack<T>(right[0], right[1]),
                                pack<T>(right[2], right[3])};
#pragma unroll
    for (int pair = 0; pair < Form<kDim>::kParts / 2; ++pair) {
      std::uint32_t b[4];
      load_transposed(loop + (16 * step + lane % 16) * kStride + 16 * pair + lane / 16 * 8, b);
      multiply_add<T>(out[2 * pair], a, b[0], b[1]);
      multiply_add<T>(out[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// A result's rows, those at `to` and eight below.
template <int kParts, typename T>
__device__ __forceinline__ void store(const float (&out)[kParts][4], float upper, float lower, std::int64_t left, std::int64_t stride,
                                      int dim, T* to) {
  const int lane = lane_of();
  const int row = lane / 4;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int d = 8 * part + lane % 4 * 2;
    if (d >= dim) continue;
    if (row < left) *reinterpret_cast<std::uint32_t*>(to + row * stride + d) = pack<T>(out[part][0] * upper, out[part][1] * upper);
    if (row + 8 < left)
      *reinterpret_cast<std::uint32_t*>(to + (row + 8) * stride + d) = pack<T>(out[part][2] * lower, out[part][3] * lower);
  }
}

// Of what is below the smallest normal number nothing is wanted.
__device__ __forceinline__ float exp2_of(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Over the four threads that have the same rows.
__device__ __forceinline__ float row_sum(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}
__device__ __forceinline__ float row_largest(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}

}  // namespace plimsoll::kernels::cuda

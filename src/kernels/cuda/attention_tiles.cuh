// What attention by tiles shares, whatever multiplies them: a block makes 64 rows of a result and walks over the other side.
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "kernels/cuda/attention_problem.cuh"
#include "kernels/cuda/checks.h"

namespace plimsoll::kernels::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kMostTileDim = 128;

// The other side of rows [first, first + kTileRows), in whole tiles: queries see keys [begin, end), keys are seen by queries of it. A
// pattern may leave some of these tiles empty.
struct Reach {
  std::int64_t begin, end;
};
__device__ __forceinline__ Reach keys_of(const AttentionProblem& p, std::int64_t first, int loop) {
  const std::int64_t begin = max(std::int64_t{0}, first - p.band.high + 1);
  return {begin / loop * loop, min(p.length, first + kTileRows - p.band.low)};
}
__device__ __forceinline__ Reach queries_of(const AttentionProblem& p, std::int64_t first, int loop) {
  const std::int64_t begin = max(std::int64_t{0}, first + p.band.low);
  return {begin / loop * loop, min(p.length, first + kTileRows - 1 + p.band.high)};
}

// Blocks of a causal mask's later rows have more to do: they come first.
__device__ __forceinline__ std::int64_t first_row() { return static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * kTileRows; }

inline dim3 tile_grid(const AttentionProblem& p, std::int64_t heads) {
  return {blocks_for(p.length, kTileRows), static_cast<unsigned>(heads), static_cast<unsigned>(p.batch)};
}

// use(kDim) for the least size that holds a head.
template <typename Use>
void with_tile_dim(std::int64_t dim, Use&& use) {
  if (dim <= 64) {
    use(std::integral_constant<int, 64>());
  } else {
    use(std::integral_constant<int, kMostTileDim>());
  }
}

struct TileLaunch {
  std::string_view name;
  dim3 grid;
  int threads;
  int shared_bytes;
};

template <typename... Parameters, typename... Operands>
void launch_tiles(const TileLaunch& launch, void (*kernel)(Parameters...), cudaStream_t stream, Operands... operands) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, launch.shared_bytes),
        launch.name);
  kernel<<<launch.grid, static_cast<unsigned>(launch.threads), static_cast<std::size_t>(launch.shared_bytes), stream>>>(operands...);
  check_launch(launch.name);
}

// What a block may have, where there is a GPU; plans are made elsewhere too.
inline bool has_shared_memory(int bytes) {
  int device = 0;
  int most = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess) {
    cudaGetLastError();
    return true;
  }
  return most >= bytes;
}

inline std::optional<std::string> refuse_tiles(const ops::Attention& op, const base::TensorType& packed, int shared_bytes) {
  if (op.separate) return "queries, keys and values are operands of their own";
  if (auto refusal = refuse_pattern(op.pattern)) return refusal;
  if (op.heads.dim > kMostTileDim) return "heads are larger than 128";
  if (packed.shape[0] > 65535 || op.heads.query > 65535) return "there are more samples or heads than one launch reaches";
  if (!has_shared_memory(shared_bytes)) return "its tiles are larger than this GPU's shared memory";
  return std::nullopt;
}

}  // namespace plimsoll::kernels::cuda

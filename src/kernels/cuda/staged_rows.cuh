// Rows on their way to registers ahead of their turn: while a block works on one set of rows, the next ones are copied to shared memory
// in the background. Each thread copies what it will read itself, so no barrier is needed, and registers hold one set only.
#pragma once

#include <cstdint>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/rows.cuh"

namespace plimsoll::kernels::cuda {

__device__ __forceinline__ void copy_in_background(uint4* to, const void* from) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the last kOpen groups of copies that this thread closed have arrived.
template <int kOpen>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

// A group takes two rows at once where it must meet at barriers for each sum, and they fit.
template <typename Shape>
inline constexpr int kRowsEach = Shape::kThreads > kWarp&& Shape::kVectors* Shape::kBlock <= 512 ? 2 : 1;

template <typename Shape>
__host__ __device__ constexpr std::int64_t sets_of(std::int64_t rows) {
  constexpr std::int64_t kSet = Shape::kRows * kRowsEach<Shape>;
  return (rows + kSet - 1) / kSet;
}

// How many sets of rows are in shared memory at once: up to three, if two blocks of 256 threads or one of 512 have room for them on
// the multiprocessors of all GPUs we build for.
template <typename Shape, int kOperands>
constexpr int row_stages() {
  constexpr int kFit = (Shape::kBlock == 256 ? 24 : 18) / (kOperands * Shape::kVectors * kRowsEach<Shape>);
  return kFit < 1 ? 1 : kFit > 3 ? 3 : kFit;
}

template <typename Shape, int kOperands>
constexpr std::size_t staged_bytes() {
  return sizeof(uint4) * row_stages<Shape, kOperands>() * kRowsEach<Shape> * kOperands * Shape::kVectors * Shape::kBlock;
}

// The row operands of a block, which takes sets of rows in turn: set blockIdx.x, blockIdx.x + gridDim.x, .. A set has kRowsEach rows
// for each group. `memory` is staged_bytes() of shared memory.
template <typename T, typename Shape, int kOperands>
class StagedRows {
 public:
  static constexpr int kEach = kRowsEach<Shape>;

  __device__ StagedRows(uint4* memory, std::int64_t rows, std::int64_t width)
      : memory_(memory + threadIdx.x), rows_(rows), width_(width), thread_(static_cast<int>(threadIdx.x) % Shape::kThreads) {}

  __device__ int column(int vector) const { return (vector * Shape::kThreads + thread_) * kWide<T>; }
  __device__ std::int64_t row_of(std::int64_t set, int each) const {
    return (set * kEach + each) * Shape::kRows + threadIdx.x / Shape::kThreads;
  }
  __device__ bool is_there(std::int64_t row, int vector) const { return row < rows_ && column(vector) < width_; }

  // Starts copying this thread's part of a set; `sources` of null are passed over.
  __device__ void start(std::int64_t set, int stage, const void* const (&sources)[kOperands]) const {
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      const std::int64_t row = row_of(set, each);
#pragma unroll
      for (int operand = 0; operand < kOperands; ++operand) {
        if (sources[operand] == nullptr) continue;
#pragma unroll
        for (int vector = 0; vector < Shape::kVectors; ++vector) {
          if (is_there(row, vector))
            copy_in_background(place(stage, each, operand, vector),
                               static_cast<const T*>(sources[operand]) + row * width_ + column(vector));
        }
      }
    }
    close_copies();
  }

  __device__ void read(int stage, int each, int operand, int vector, float (&x)[kWide<T>]) const {
    decode_wide<T>(*place(stage, each, operand, vector), x);
  }

 private:
  __device__ uint4* place(int stage, int each, int operand, int vector) const {
    return memory_ + (((stage * kEach + each) * kOperands + operand) * Shape::kVectors + vector) * Shape::kBlock;
  }

  uint4* memory_;
  std::int64_t rows_;
  std::int64_t width_;
  int thread_;
};

// Calls work(set, stage) for each of the block's sets, when they have arrived and with later ones under way. All threads of a block
// make the same calls.
template <typename T, typename Shape, int kOperands, typename Work>
__device__ __forceinline__ void for_each_set(const StagedRows<T, Shape, kOperands>& staged, const void* const (&sources)[kOperands],
                                             std::int64_t sets, const Work& work) {
  constexpr int kStages = row_stages<Shape, kOperands>();
#pragma unroll
  for (int ahead = 0; ahead < kStages - 1; ++ahead) staged.start(blockIdx.x + static_cast<std::int64_t>(ahead) * gridDim.x, ahead, sources);
  int stage = 0;
  for (std::int64_t set = blockIdx.x; set < sets; set += gridDim.x) {
    const int last = stage == 0 ? kStages - 1 : stage - 1;
    staged.start(set + static_cast<std::int64_t>(kStages - 1) * gridDim.x, last, sources);
    wait_for_copies<kStages - 1>();
    work(set, stage);
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
}

// Kernels may use more than 48 KB of shared memory only when told.
template <typename Kernel>
void allow_shared_bytes(Kernel* kernel, std::size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), "cudaFuncSetAttribute");
}

}  // namespace plimsoll::kernels::cuda

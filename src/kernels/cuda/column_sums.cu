// See column_sums.cuh; and the gradient of a bias, which is such a sum and nothing else.
#include "kernels/cuda/column_sums.cuh"

#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/table.h"
#include "kernels/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

// ---- the second stage

constexpr int kColumns = 32;
constexpr int kShares = 16;  // threads that share a column's partial sums: each adds up every kShares-th

__global__ void __launch_bounds__(kColumns* kShares) add_parts(PartSums sums) {
  __shared__ float shared[kShares][kColumns];
  const int which = static_cast<int>(blockIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  float sum = 0.0f;
  if (column < sums.width) {
    const float* from = sums.partials + which * sums.stride + column;
    for (std::int64_t part = threadIdx.y; part < sums.parts; part += kShares) sum += from[part * sums.totals * sums.stride];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= sums.width) return;
  for (int share = 1; share < kShares; ++share) sum += shared[share][threadIdx.x];
  if (sums.present[which].data != nullptr) sum += read_one(sums.present[which], column);
  write_one(sums.total[which], column, sum);
}

// ---- bias_grad

constexpr int kWarps = 8;
constexpr int kAtOnce = 4;  // rows that a warp has under way

struct BiasGradArguments {
  Span dy;
  float* partials = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;
  std::int64_t rows_per_block = 0;
};

// The columns of a block: what a warp reads of a row at once, 16 bytes a lane.
template <typename T>
inline constexpr int kTile = kWarp * kWide<T>;

// kCount elements of a row from `column` on, as f32; zeros past the end.
template <typename T, bool kAligned>
struct RowPiece {
  uint4 raw = make_uint4(0, 0, 0, 0);

  __device__ void fetch(const BiasGradArguments& a, std::int64_t row, std::int64_t column) {
    const T* from = static_cast<const T*>(a.dy.data) + row * a.width + column;
    if constexpr (kAligned) {
      if (column < a.width) raw = *reinterpret_cast<const uint4*>(from);
    } else {
      float x[kWide<T>];
#pragma unroll
      for (int i = 0; i < kWide<T>; ++i) x[i] = column + i < a.width ? to_f32(from[i]) : 0.0f;
      raw = encode_wide<T>(x);
    }
  }
};

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kWarps* kWarp, 4) sum_rows(BiasGradArguments a) {
  __shared__ float shared[kWarps][kTile<T>];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kTile<T>;
  const std::int64_t begin = blockIdx.y * a.rows_per_block;
  const std::int64_t end = begin + a.rows_per_block < a.rows ? begin + a.rows_per_block : a.rows;
  float sum[kWide<T>] = {};
  for (std::int64_t row = begin + warp; row < end; row += kWarps * kAtOnce) {
    RowPiece<T, kAligned> pieces[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (row + k * kWarps < end) pieces[k].fetch(a, row + k * kWarps, tile + lane * kWide<T>);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      float values[kWide<T>];
      decode_wide<T>(pieces[k].raw, values);
#pragma unroll
      for (int i = 0; i < kWide<T>; ++i) sum[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kWide<T>; ++i) shared[warp][lane * kWide<T> + i] = sum[i];
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < kTile<T> && tile + column < a.width; column += kWarps * kWarp) {
    float total = 0.0f;
    for (int from = 0; from < kWarps; ++from) total += shared[from][column];
    a.partials[blockIdx.y * a.stride + tile + column] = total;
  }
}

// Row blocks for a few blocks on every multiprocessor, of at least 64 rows each.
std::int64_t row_blocks(std::int64_t rows, std::int64_t width, DType dtype) {
  const std::int64_t tile = kWarp * 16 / base::size_of(dtype);
  const std::int64_t tiles = (width + tile - 1) / tile;
  return std::max<std::int64_t>(1, std::min((rows + 63) / 64, 2 * kSumBlocks / tiles));
}

std::int64_t bias_grad_workspace(const ops::KernelQuery& query) {
  const base::Shape& shape = query.inputs[0].shape;
  Workspace workspace;
  workspace.take<float>(row_blocks(shape.rows(), shape[-1], query.inputs[0].dtype) * padded_row(shape[-1]));
  return workspace.bytes();
}

void bias_grad(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::BiasGrad>(call.op);
  const base::Shape& shape = call.inputs[0].type.shape;
  const DType dtype = call.inputs[0].type.dtype;
  const std::int64_t blocks = row_blocks(shape.rows(), shape[-1], dtype);
  const std::int64_t stride = padded_row(shape[-1]);
  Workspace workspace(call.workspace);
  const BiasGradArguments a{.dy = span_of(call.inputs[0]),
                            .partials = workspace.take<float>(blocks * stride),
                            .rows = shape.rows(),
                            .width = shape[-1],
                            .stride = stride,
                            .rows_per_block = (shape.rows() + blocks - 1) / blocks};
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(blocks_for(a.width, kTile<T>), static_cast<unsigned>(blocks));
    if (is_aligned(a.dy.data) && a.width % kWide<T> == 0) {
      sum_rows<T, true><<<grid, kWarps * kWarp, 0, stream>>>(a);
    } else {
      sum_rows<T, false><<<grid, kWarps * kWarp, 0, stream>>>(a);
    }
  });
  check_launch("bias_grad");
  launch_part_sums({.partials = a.partials,
                    .parts = blocks,
                    .stride = stride,
                    .width = a.width,
                    .totals = 1,
                    .total = {span_of(call.outputs[0])},
                    .present = {op.accumulate ? span_of(call.inputs[1]) : Span{}}},
                   stream);
}

constexpr Kernel kKernels[] = {
    {.op = "bias_grad", .name = "bias_grad.columns", .refusal = refuse_other_floats, .workspace = bias_grad_workspace, .launch = bias_grad},
};

}  // namespace

void launch_part_sums(const PartSums& sums, cudaStream_t stream) {
  const dim3 grid(blocks_for(sums.width, kColumns), static_cast<unsigned>(sums.totals));
  add_parts<<<grid, dim3(kColumns, kShares), 0, stream>>>(sums);
  check_launch("column sums");
}

std::span<const Kernel> bias_grad_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

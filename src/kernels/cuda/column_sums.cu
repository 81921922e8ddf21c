// See column_sums.cuh; and the gradient of a bias, which is such a sum and nothing else.
#include "kernels/cuda/column_sums.cuh"

#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/refusals.h"
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
constexpr int kTile = 32 * kPiece;  // columns of a block
constexpr int kAtOnce = 4;          // rows that a warp has under way

struct BiasGradArguments {
  Span dy;
  float* partials = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;
  std::int64_t rows_per_block = 0;
  bool aligned = false;
};

__global__ void __launch_bounds__(kWarps * 32) sum_rows(BiasGradArguments a) {
  __shared__ float shared[kWarps][kTile];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTile + lane * kPiece;
  const std::int64_t begin = blockIdx.y * a.rows_per_block;
  const std::int64_t end = begin + a.rows_per_block < a.rows ? begin + a.rows_per_block : a.rows;
  const Piece columns = piece_at(column, a.width, a.aligned);
  float sum[kPiece] = {};
  for (std::int64_t row = begin + warp; row < end; row += kWarps * kAtOnce) {
    Raw raw[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t at = row + k * kWarps;
      raw[k] = fetch(a.dy, {at * a.width + column, at < end ? columns.count : 0, columns.whole && at < end});
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      float values[kPiece];
      decode(raw[k], a.dy.dtype, values);  // of a row past the end: zeros
#pragma unroll
      for (int i = 0; i < kPiece; ++i) sum[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) shared[warp][lane * kPiece + i] = sum[i];
  __syncthreads();
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * kTile + threadIdx.x;
  if (threadIdx.x >= kTile || own >= a.width) return;
  float total = 0.0f;
  for (int from = 0; from < kWarps; ++from) total += shared[from][threadIdx.x];
  a.partials[blockIdx.y * a.stride + own] = total;
}

// Row blocks for a few blocks on every multiprocessor, of at least 64 rows each.
std::int64_t row_blocks(std::int64_t rows, std::int64_t width) {
  const std::int64_t tiles = (width + kTile - 1) / kTile;
  return std::max<std::int64_t>(1, std::min((rows + 63) / 64, 4 * kSumBlocks / tiles));
}

std::int64_t bias_grad_workspace(const ops::KernelQuery& query) {
  const base::Shape& shape = query.inputs[0].shape;
  Workspace workspace;
  workspace.take<float>(row_blocks(shape.rows(), shape[-1]) * padded_row(shape[-1]));
  return workspace.bytes();
}

void bias_grad(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::BiasGrad>(call.op);
  const base::Shape& shape = call.inputs[0].type.shape;
  const std::int64_t blocks = row_blocks(shape.rows(), shape[-1]);
  const std::int64_t stride = padded_row(shape[-1]);
  Workspace workspace(call.workspace);
  BiasGradArguments a{.dy = span_of(call.inputs[0]),
                      .partials = workspace.take<float>(blocks * stride),
                      .rows = shape.rows(),
                      .width = shape[-1],
                      .stride = stride,
                      .rows_per_block = (shape.rows() + blocks - 1) / blocks,
                      .aligned = is_aligned(call.inputs[0].data) && shape[-1] % kPiece == 0};
  sum_rows<<<dim3(blocks_for(a.width, kTile), static_cast<unsigned>(blocks)), kWarps * 32, 0, stream>>>(a);
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

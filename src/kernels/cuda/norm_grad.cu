// The gradient of normalisation. With h = (x - mean) / deviation and g = dy weight:
//   dx = (g - [mean g] - h mean(g h)) / deviation + dsum,  dweight = sum over rows of dy h,  dbias = sum over rows of dy.
// A block takes sets of rows in turn and keeps the sums of its columns in registers, so that dy, x and dsum are read once and dx is
// written once; the blocks' sums are added up afterwards (column_sums.cuh).
#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/staged_rows.cuh"
#include "kernels/cuda/table.h"
#include "kernels/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

struct NormGradArguments {
  const void* dy = nullptr;
  const void* x = nullptr;
  Span weight;
  const float2* stats = nullptr;
  const void* dsum = nullptr;  // null: none
  void* dx = nullptr;
  float* partials = nullptr;  // (blocks, 2, stride)
  std::int64_t stride = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  bool centred = false;
  bool bias = false;
};

// Adds up what the block's groups have of the same columns, in their order, and leaves it in the workspace.
template <typename T, typename Shape>
__device__ __forceinline__ void leave_sums(const float (&sums)[Shape::kVectors][kWide<T>], float* to, std::int64_t width, float* shared) {
  constexpr int kColumns = Shape::kThreads * kWide<T>;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) shared[threadIdx.x * kWide<T> + i] = sums[v][i];
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < kColumns; column += Shape::kBlock) {
      const std::int64_t at = static_cast<std::int64_t>(v) * kColumns + column;
      if (at >= width) continue;
      float total = 0.0f;
#pragma unroll
      for (int group = 0; group < Shape::kRows; ++group) total += shared[group * kColumns + column];
      to[at] = total;
    }
  }
}

struct RowSums {
  float g;
  float gh;
};

// Over a group, in a fixed order, of each of its rows. Sets of rows take turns with two places in shared memory, so that one barrier a
// set is enough.
template <typename Shape, int kEach>
__device__ __forceinline__ void add_group(RowSums (&own)[kEach], RowSums (&shared)[2][kEach][Shape::kBlock / kWarp], int turn) {
#pragma unroll
  for (int each = 0; each < kEach; ++each) own[each] = {lanes_sum(own[each].g), lanes_sum(own[each].gh)};
  if constexpr (Shape::kThreads > kWarp) {
    constexpr int kWarps = Shape::kThreads / kWarp;
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      if (threadIdx.x % kWarp == 0) shared[turn][each][threadIdx.x / kWarp] = own[each];
    }
    __syncthreads();
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      const RowSums* sums = shared[turn][each] + threadIdx.x / Shape::kThreads * kWarps;
      own[each] = {0.0f, 0.0f};
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) own[each] = {own[each].g + sums[warp].g, own[each].gh + sums[warp].gh};
    }
  }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kBlock, 512 / Shape::kBlock) norm_grad_rows(NormGradArguments a) {
  constexpr int kVectors = Shape::kVectors;
  constexpr int kEach = kRowsEach<Shape>;
  enum Operand { kDy, kX, kDsum, kOperands };
  extern __shared__ uint4 memory[];
  __shared__ RowSums shared[2][kEach][Shape::kBlock / kWarp];
  const StagedRows<T, Shape, kOperands> staged(memory, a.rows, a.width);
  float dweight[kVectors][kWide<T>] = {};
  float dbias[kVectors][kWide<T>] = {};
  float weight[kVectors][kWide<T>] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (staged.column(v) < a.width) read_small(a.weight, staged.column(v), weight[v]);
  }

  int turn = 0;
  const void* const sources[kOperands] = {a.dy, a.x, a.dsum};
  for_each_set(staged, sources, sets_of<Shape>(a.rows), [&](std::int64_t set, int stage) {
    float2 stats[kEach];
    RowSums sums[kEach];
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      const std::int64_t row = staged.row_of(set, each);
      stats[each] = row < a.rows ? a.stats[row] : make_float2(0.0f, 0.0f);
      sums[each] = {0.0f, 0.0f};
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (!staged.is_there(row, v)) continue;
        float dy[kWide<T>], x[kWide<T>];
        staged.read(stage, each, kDy, v, dy);
        staged.read(stage, each, kX, v, x);
#pragma unroll
        for (int i = 0; i < kWide<T>; ++i) {
          const float h = (x[i] - stats[each].x) * stats[each].y;
          const float g = dy[i] * weight[v][i];
          sums[each].g += g;
          sums[each].gh = fmaf(g, h, sums[each].gh);
          dweight[v][i] = fmaf(dy[i], h, dweight[v][i]);
          dbias[v][i] += dy[i];
        }
      }
    }
    add_group<Shape>(sums, shared, turn);
    turn ^= 1;
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      // dx = dy weight inverse - (shift + (x - mean) tilt) + dsum, the constants of the row gathered.
      const std::int64_t row = staged.row_of(set, each);
      const float share = stats[each].y / static_cast<float>(a.width);
      const float shift = a.centred ? sums[each].g * share : 0.0f;
      const float tilt = sums[each].gh * share * stats[each].y;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (!staged.is_there(row, v)) continue;
        float dy[kWide<T>], x[kWide<T>], dsum[kWide<T>] = {};
        staged.read(stage, each, kDy, v, dy);
        staged.read(stage, each, kX, v, x);
        if (a.dsum != nullptr) staged.read(stage, each, kDsum, v, dsum);
#pragma unroll
        for (int i = 0; i < kWide<T>; ++i) {
          const float taken = fmaf(x[i] - stats[each].x, tilt, shift);
          dy[i] = fmaf(dy[i] * weight[v][i], stats[each].y, -taken) + dsum[i];
        }
        *reinterpret_cast<uint4*>(static_cast<T*>(a.dx) + row * a.width + staged.column(v)) = encode_wide<T>(dy);
      }
    }
  });
  wait_for_copies<0>();  // those past the last row: none, but memory is used again below
  float* to = a.partials + blockIdx.x * 2 * a.stride;
  leave_sums<T, Shape>(dweight, to, a.width, reinterpret_cast<float*>(memory));
  if (a.bias) leave_sums<T, Shape>(dbias, to + a.stride, a.width, reinterpret_cast<float*>(memory));
}

// Any width and any alignment: a block takes a row at a time and adds to its sums in the workspace, where each column is one thread's.
template <typename T>
__global__ void __launch_bounds__(256) norm_grad_any(NormGradArguments a) {
  __shared__ float shared[2][256 / kWarp];
  float* dweight = a.partials + blockIdx.x * 2 * a.stride;
  float* dbias = dweight + a.stride;
  for (std::int64_t c = threadIdx.x; c < a.width; c += 256) dweight[c] = dbias[c] = 0.0f;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* dy = static_cast<const T*>(a.dy) + row * a.width;
    const T* x = static_cast<const T*>(a.x) + row * a.width;
    const float2 stats = a.stats[row];
    float sum_g = 0.0f;
    float sum_gh = 0.0f;
    for (std::int64_t c = threadIdx.x; c < a.width; c += 256) {
      const float slope = to_f32(dy[c]);
      const float h = (to_f32(x[c]) - stats.x) * stats.y;
      const float g = slope * read_one(a.weight, c);
      sum_g += g;
      sum_gh = fmaf(g, h, sum_gh);
      dweight[c] = fmaf(slope, h, dweight[c]);
      dbias[c] += slope;
    }
    sum_g = group_sum<256>(sum_g, shared[0]);
    sum_gh = group_sum<256>(sum_gh, shared[1]);
    const float share = stats.y / static_cast<float>(a.width);
    const float shift = a.centred ? sum_g * share : 0.0f;
    const float tilt = sum_gh * share * stats.y;
    for (std::int64_t c = threadIdx.x; c < a.width; c += 256) {
      const float taken = fmaf(to_f32(x[c]) - stats.x, tilt, shift);
      const float dsum = a.dsum != nullptr ? to_f32(static_cast<const T*>(a.dsum)[row * a.width + c]) : 0.0f;
      static_cast<T*>(a.dx)[row * a.width + c] = from_f32<T>(fmaf(to_f32(dy[c]) * read_one(a.weight, c), stats.y, -taken) + dsum);
    }
    __syncthreads();  // before the next row's sums overwrite this one's
  }
}

// Sets of rows that blocks take in turn; with fewer than blocks, each takes one. A narrow row shares its block with others, but
// asking for more blocks than then start only leaves workspace unused.
std::int64_t most_blocks(std::int64_t rows) { return std::max<std::int64_t>(1, std::min(rows, kSumBlocks)); }

std::int64_t norm_grad_workspace(const ops::KernelQuery& query) {
  const base::Shape& shape = query.inputs[1].shape;
  Workspace workspace;
  workspace.take<float>(most_blocks(shape.rows()) * 2 * padded_row(shape[-1]));
  return workspace.bytes();
}

void norm_grad(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::NormGrad>(call.op);
  const base::Shape& shape = call.inputs[1].type.shape;
  const DType dtype = call.inputs[1].type.dtype;
  Workspace workspace(call.workspace);
  const std::int64_t stride = padded_row(shape[-1]);
  const NormGradArguments a{.dy = call.inputs[0].data,
                            .x = call.inputs[1].data,
                            .weight = span_of(call.inputs[2]),
                            .stats = call.inputs[3].as<const float2>(),
                            .dsum = op.has_dsum ? call.inputs[4].data : nullptr,
                            .dx = call.outputs[0].data,
                            .partials = workspace.take<float>(most_blocks(shape.rows()) * 2 * stride),
                            .stride = stride,
                            .rows = shape.rows(),
                            .width = shape[-1],
                            .centred = op.kind == ops::NormKind::layer,
                            .bias = op.bias};
  std::int64_t blocks = most_blocks(a.rows);
  const int vectors = row_vectors(a.width, dtype);
  const bool aligned =
      is_aligned(a.dy) && is_aligned(a.x) && is_aligned(a.dsum) && is_aligned(a.dx) && is_aligned(a.weight.data) && vectors > 0;
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (!aligned) {
      norm_grad_any<T><<<static_cast<unsigned>(blocks), 256, 0, stream>>>(a);
      return;
    }
    with_row_shape<true>(vectors, [&](auto row_shape) {
      using Shape = decltype(row_shape);
      constexpr std::size_t shared_bytes = staged_bytes<Shape, 3>();
      blocks = std::min<std::int64_t>(kSumBlocks * 256 / Shape::kBlock, std::max<std::int64_t>(1, sets_of<Shape>(a.rows)));
      allow_shared_bytes(norm_grad_rows<T, Shape>, shared_bytes);
      norm_grad_rows<T, Shape><<<static_cast<unsigned>(blocks), Shape::kBlock, shared_bytes, stream>>>(a);
    });
  });
  check_launch("norm_grad");
  const std::size_t present = op.has_dsum ? 5 : 4;
  PartSums sums{.partials = a.partials,
                .parts = blocks,
                .stride = stride,
                .width = a.width,
                .totals = op.bias ? 2 : 1,
                .total = {span_of(call.outputs[1]), op.bias ? span_of(call.outputs[2]) : Span{}},
                .present = {}};
  for (int which = 0; which < sums.totals && op.accumulate; ++which)
    sums.present[which] = span_of(call.inputs[present + static_cast<std::size_t>(which)]);
  // Without a bias the second set of partial sums is passed over.
  if (!op.bias) sums.stride = 2 * stride;
  launch_part_sums(sums, stream);
}

constexpr Kernel kKernels[] = {
    {.op = "norm_grad", .name = "norm_grad.rows", .refusal = refuse_mixed_rows, .workspace = norm_grad_workspace, .launch = norm_grad},
};

}  // namespace

std::span<const Kernel> norm_grad_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

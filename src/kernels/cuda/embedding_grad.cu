// The scatter that is an embedding's gradient, without floating-point atomics: tokens are sorted by id (sort_ids.cuh), and the rows of
// dy that share an id are added in token order.
//
// A frequent id must not keep one block busy while the others wait. So the sorted tokens are cut in chunks of kChunk, a block each.
// Ids whose tokens lie within a chunk are finished there. The rest leave partial sums: a chunk's head is what belongs to an id that
// began before the chunk, its tail what begins in it and goes on. A second kernel adds tail and heads of such an id in order.
#include "kernels/cuda/embedding_grad.h"

#include "kernels/cuda/checks.h"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/sort_ids.cuh"
#include "kernels/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kChunk = 32;
constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // rows that a thread has under way

struct EmbedGradArguments {
  SortedIds sorted;
  Span dy;
  Span dtable;
  float* heads = nullptr;  // (chunks, width)
  float* tails = nullptr;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  bool accumulate = false;
  bool aligned = false;
};

struct GradScratch {
  GradScratch(Workspace& workspace, std::int64_t tokens, std::int64_t rows, std::int64_t width)
      : sort(workspace, tokens, rows),
        heads(workspace.take<float>((tokens + kChunk - 1) / kChunk * width)),
        tails(workspace.take<float>((tokens + kChunk - 1) / kChunk * width)) {}

  SortScratch sort;
  float* heads;
  float* tails;
};

__device__ __forceinline__ void finish_row(const EmbedGradArguments& a, std::uint32_t key, std::int64_t column, const Piece& columns,
                                           float (&sum)[kPiece]) {
  const Piece place{static_cast<std::int64_t>(key) * a.width + column, columns.count, columns.whole};
  if (a.accumulate) {
    float present[kPiece];
    read(a.dtable, place, present);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sum[i] += present[i];
  }
  write(a.dtable, place, sum);
}

__device__ __forceinline__ void leave(float* to, const Piece& columns, const float (&sum)[kPiece]) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    if (i < columns.count) to[i] = sum[i];
  }
}

__global__ void __launch_bounds__(kThreads) sum_chunks(EmbedGradArguments a) {
  // keys[1 + t] is that of the chunk's token t; beside them the neighbours', which say whether a run goes on there.
  __shared__ std::uint32_t keys[kChunk + 2];
  __shared__ std::int32_t positions[kChunk];
  const std::int64_t chunk = blockIdx.x;
  const std::int64_t first = chunk * kChunk;
  const int count = static_cast<int>(first + kChunk < a.tokens ? kChunk : a.tokens - first);
  const auto none = static_cast<std::uint32_t>(a.rows);
  for (int t = static_cast<int>(threadIdx.x); t < count + 2; t += kThreads) {
    const std::int64_t at = first + t - 1;
    keys[t] = at >= 0 && at < a.tokens ? a.sorted.keys[at] : none;
    if (t < count) positions[t] = a.sorted.positions[first + t];
  }
  __syncthreads();
  if (keys[1] == none) return;  // in order: none of the chunk's ids is in the table
  for (std::int64_t column = threadIdx.x * kPiece; column < a.width; column += kThreads * kPiece) {
    const Piece columns = piece_at(column, a.width, a.aligned);
    float sum[kPiece] = {};
    bool began_before = keys[0] == keys[1];
    for (int t = 0; t < count; t += kAtOnce) {
      Raw raw[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const bool there = t + k < count;
        raw[k] = fetch(a.dy, {(there ? positions[t + k] : 0) * a.width + column, there ? columns.count : 0, columns.whole && there});
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (t + k >= count || keys[1 + t + k] == none) continue;
        float row[kPiece];
        decode(raw[k], a.dy.dtype, row);
#pragma unroll
        for (int i = 0; i < kPiece; ++i) sum[i] += row[i];
        const std::uint32_t key = keys[1 + t + k];
        const bool last = t + k == count - 1;
        const bool goes_on = keys[2 + t + k] == key;
        if (goes_on && !last) continue;
        if (began_before) {
          leave(a.heads + chunk * a.width + column, columns, sum);
        } else if (goes_on) {
          leave(a.tails + chunk * a.width + column, columns, sum);
        } else {
          finish_row(a, key, column, columns, sum);
        }
        began_before = false;
#pragma unroll
        for (int i = 0; i < kPiece; ++i) sum[i] = 0.0f;
      }
    }
  }
}

// One block for each chunk in which an id begins that goes on into the next.
__global__ void __launch_bounds__(kThreads) join_chunks(EmbedGradArguments a) {
  const std::int64_t chunk = blockIdx.x;
  const std::int64_t next = (chunk + 1) * kChunk;
  if (next >= a.tokens) return;
  const std::uint32_t key = a.sorted.keys[next - 1];
  if (key == static_cast<std::uint32_t>(a.rows) || a.sorted.keys[next] != key) return;
  if (chunk > 0 && a.sorted.keys[chunk * kChunk - 1] == key) return;
  for (std::int64_t column = threadIdx.x * kPiece; column < a.width; column += kThreads * kPiece) {
    const Piece columns = piece_at(column, a.width, a.aligned);
    float sum[kPiece] = {};
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i < columns.count) sum[i] = a.tails[chunk * a.width + column + i];
    }
    for (std::int64_t other = chunk + 1; other * kChunk < a.tokens && a.sorted.keys[other * kChunk] == key; ++other) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        if (i < columns.count) sum[i] += a.heads[other * a.width + column + i];
      }
    }
    finish_row(a, key, column, columns, sum);
  }
}

}  // namespace

std::int64_t embed_grad_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  GradScratch(workspace, query.inputs[0].shape.elements(), query.outputs[0].shape[0], query.outputs[0].shape[1]);
  return workspace.bytes();
}

void embed_grad(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::EmbedGrad>(call.op);
  const Tensor& dtable = call.outputs[0];
  const auto bytes = static_cast<std::size_t>(dtable.type.bytes());
  if (!op.accumulate) {
    check(cudaMemsetAsync(dtable.data, 0, bytes, stream), "embed_grad");
  } else if (call.inputs[2].data != dtable.data) {
    check(cudaMemcpyAsync(dtable.data, call.inputs[2].data, bytes, cudaMemcpyDeviceToDevice, stream), "embed_grad");
  }
  const std::int64_t tokens = call.inputs[0].type.shape.elements();
  if (tokens == 0) return;
  Workspace workspace(call.workspace);
  const GradScratch scratch(workspace, tokens, op.rows, dtable.type.shape[1]);
  const EmbedGradArguments a{.sorted = sort_ids(scratch.sort, call.inputs[0].as<const std::int32_t>(), tokens, op.rows, stream),
                             .dy = span_of(call.inputs[1]),
                             .dtable = span_of(dtable),
                             .heads = scratch.heads,
                             .tails = scratch.tails,
                             .tokens = tokens,
                             .rows = op.rows,
                             .width = dtable.type.shape[1],
                             .accumulate = op.accumulate,
                             .aligned = are_aligned(call.inputs[1], dtable) && dtable.type.shape[1] % kPiece == 0};
  const unsigned chunks = blocks_for(tokens, kChunk);
  sum_chunks<<<chunks, kThreads, 0, stream>>>(a);
  join_chunks<<<chunks, kThreads, 0, stream>>>(a);
  check_launch("embed_grad");
}

}  // namespace plimsoll::kernels::cuda

#include "kernels/cuda/fold.h"

#include "kernels/cuda/checks.h"
#include "kernels/cuda/pieces.cuh"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) fold_pieces(const __grid_constant__ Fold fold, bool aligned) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPiece;
  const Piece piece = piece_at(first, fold.count, aligned);
  if (piece.count == 0) return;
  float sum[kPiece];
  read({const_cast<void*>(fold.in[0]), fold.dtype}, piece, sum);
  for (int member = 1; member < fold.inputs; ++member) {
    float next[kPiece];
    read({const_cast<void*>(fold.in[member]), fold.dtype}, piece, next);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sum[i] = __fadd_rn(sum[i], next[i]);
  }
  for (int member = 0; member < fold.outputs; ++member) write({fold.out[member], fold.dtype}, piece, sum);
}

}  // namespace

void launch_fold(const Fold& fold, cudaStream_t stream) {
  if (fold.count == 0) return;
  bool aligned = true;
  for (int member = 0; member < fold.inputs; ++member) aligned = aligned && is_aligned(fold.in[member]);
  for (int member = 0; member < fold.outputs; ++member) aligned = aligned && is_aligned(fold.out[member]);
  fold_pieces<<<blocks_for(fold.count, kThreads * kPiece), kThreads, 0, stream>>>(fold, aligned);
  check_launch("fold");
}

}  // namespace plimsoll::kernels::cuda

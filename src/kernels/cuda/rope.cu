// Rotary positions: query and key heads of packed rows turned by the angle of their position, values passed through. A block takes a
// row; a thread takes kPairs neighbouring dims and their partners half a head away.
#include "kernels/cuda/checks.h"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/table.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 128;

struct RopeArguments {
  Span x, y;
  const std::int32_t* positions = nullptr;
  const float* table = nullptr;  // (context, dim): cosines, then sines
  std::int64_t context = 0;
  int width = 0;
  int dim = 0;
  int slots_of_group = 0;  // queries, a key and a value
  float sign = 1.0f;       // -1 turns back
  bool aligned = false;
};

// A position outside the table gives NaN: a device cannot stop, and a loss that is not a number is not overlooked.
__global__ void __launch_bounds__(kThreads) rotate_rows(RopeArguments a) {
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * a.width;
  const std::int64_t position = a.positions[blockIdx.x];
  const bool known = position >= 0 && position < a.context;
  const float* angles = a.table + (known ? position : 0) * a.dim;
  const int half = a.dim / 2;
  const int pieces_of_half = (half + kPiece - 1) / kPiece;
  const int pieces = a.width / a.dim * pieces_of_half;
  for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kThreads) {
    const int slot = piece / pieces_of_half;
    const int d = (piece - slot * pieces_of_half) * kPiece;
    Piece low = piece_at(d, half, a.aligned);
    low.first += start + static_cast<std::int64_t>(slot) * a.dim;
    const Piece high{low.first + half, low.count, low.whole};
    const Raw low_raw = fetch(a.x, low);
    const Raw high_raw = fetch(a.x, high);
    float first[kPiece], second[kPiece];
    decode(low_raw, a.x.dtype, first);
    decode(high_raw, a.x.dtype, second);
    if (slot % a.slots_of_group != a.slots_of_group - 1) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        if (i >= low.count) continue;
        const float c = known ? angles[d + i] : __int_as_float(0x7FFFFFFF);
        const float s = a.sign * angles[half + d + i];
        const float turned = fmaf(-second[i], s, first[i] * c);
        second[i] = fmaf(first[i], s, second[i] * c);
        first[i] = turned;
      }
    }
    write(a.y, low, first);
    write(a.y, high, second);
  }
}

void rope(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::Rope>(call.op);
  const std::int64_t rows = call.inputs[0].type.shape.rows();
  if (rows == 0) return;
  RopeArguments a{.x = span_of(call.inputs[0]),
                  .y = span_of(call.outputs[0]),
                  .positions = call.inputs[1].as<const std::int32_t>(),
                  .table = call.inputs[2].as<const float>(),
                  .context = call.inputs[2].type.shape[0],
                  .width = static_cast<int>(op.heads.packed_width()),
                  .dim = static_cast<int>(op.heads.dim),
                  .slots_of_group = static_cast<int>(op.heads.per_group() + 2),
                  .sign = op.inverse ? -1.0f : 1.0f,
                  .aligned = op.heads.dim % (2 * kPiece) == 0};
  a.aligned = a.aligned && are_aligned(a.x, a.y);
  rotate_rows<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(a);
  check_launch("rope");
}

constexpr Kernel kKernels[] = {{.op = "rope", .name = "rope.rows", .refusal = refuse_other_floats, .launch = rope}};

}  // namespace

std::span<const Kernel> rope_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

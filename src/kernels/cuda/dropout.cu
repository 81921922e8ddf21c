// Dropout and the residual sum with dropout. Each sample has blocks of its own, so a piece of four elements is one draw and no index
// is divided.
#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/table.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kPieces = 4;
constexpr int kBlockElements = kThreads * kPieces * kPiece;
constexpr std::int64_t kMostSampleBlocks = 32768;  // the grid's second extent is bounded; more samples take turns

struct DropoutArguments {
  Span x;  // null: there is no sum, only r dropped
  Span r;
  Span y;
  DropoutSite site;
  std::int64_t samples = 0;
  std::int64_t per_sample = 0;
  bool aligned = false;
};

template <bool kSum>
__global__ void __launch_bounds__(kThreads) drop_pieces(DropoutArguments a) {
  __shared__ DropoutKey key;
  if (threadIdx.x == 0) key = dropout_key(a.site);
  __syncthreads();
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * kBlockElements;
  for (std::int64_t sample = blockIdx.y; sample < a.samples; sample += gridDim.y) {
    const auto number = static_cast<std::uint32_t>(a.site.samples[sample]);
    Piece pieces[kPieces];
    Raw r[kPieces], x[kPieces];
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      pieces[k] = piece_at(base + (k * kThreads + static_cast<int>(threadIdx.x)) * kPiece, a.per_sample, a.aligned);
      pieces[k].first += sample * a.per_sample;
      r[k] = fetch(a.r, pieces[k]);
      if constexpr (kSum) x[k] = fetch(a.x, pieces[k]);
    }
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      if (pieces[k].count == 0) continue;
      float values[kPiece], multipliers[kPiece];
      decode(r[k], a.r.dtype, values);
      dropout_multipliers(a.site, key, number, static_cast<std::uint64_t>(pieces[k].first - sample * a.per_sample), multipliers);
      float sums[kPiece] = {};
      if constexpr (kSum) decode(x[k], a.x.dtype, sums);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) values[i] = kSum ? fmaf(values[i], multipliers[i], sums[i]) : values[i] * multipliers[i];
      write(a.y, pieces[k], values);
    }
  }
}

// Some rows of a micro-batch, as one of several ranks has them: samples begin and end anywhere.
struct DropRowsMap {
  Span x;  // null: there is no sum
  Span r;
  Span y;
  DropoutSite site;
  std::int64_t before = 0;  // elements of the micro-batch that other ranks have
  std::int64_t per_sample = 0;

  struct Two {
    Raw x, r;
  };
  __device__ Two fetch(const Piece& piece) const { return {x.data != nullptr ? cuda::fetch(x, piece) : Raw{}, cuda::fetch(r, piece)}; }
  __device__ void finish(const Piece& piece, const Two& raw) const {
    const DropoutKey key = dropout_key(site);
    float sums[kPiece] = {}, values[kPiece], multipliers[kPiece];
    if (x.data != nullptr) decode(raw.x, x.dtype, sums);
    decode(raw.r, r.dtype, values);
    const std::int64_t first = before + piece.first;
    if (first % kPiece == 0 && per_sample % kPiece == 0) {
      const auto sample = static_cast<std::uint32_t>(site.samples[first / per_sample]);
      dropout_multipliers(site, key, sample, static_cast<std::uint64_t>(first % per_sample), multipliers);
    } else {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        if (i >= piece.count) continue;
        const auto sample = static_cast<std::uint32_t>(site.samples[(first + i) / per_sample]);
        multipliers[i] = dropout_multiplier(site, key, sample, static_cast<std::uint64_t>((first + i) % per_sample));
      }
    }
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i < piece.count) values[i] = x.data != nullptr ? fmaf(values[i], multipliers[i], sums[i]) : values[i] * multipliers[i];
    }
    write(y, piece, values);
  }
};

template <typename Attributes>
void drop_rows(const Attributes& op, const DropoutArguments& a, const base::Shape& shape, cudaStream_t stream) {
  const DropRowsMap map{
      .x = a.x, .r = a.r, .y = a.y, .site = a.site, .before = op.first_row * shape[-1], .per_sample = op.sample_rows * shape[-1]};
  launch_map(map, shape.elements(), are_aligned(a.x, a.r, a.y), stream);
}

dim3 grid_for(const DropoutArguments& a) {
  return dim3(blocks_for(a.per_sample, kBlockElements), static_cast<unsigned>(std::min(a.samples, kMostSampleBlocks)));
}

void dropout(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::Dropout>(call.op);
  const base::Shape& shape = call.inputs[0].type.shape;
  if (shape.elements() == 0) return;
  DropoutArguments a{.x = {},
                     .r = span_of(call.inputs[0]),
                     .y = span_of(call.outputs[0]),
                     .site = dropout_site(op.rate, op.site, call.inputs[1], call.inputs[2]),
                     .samples = shape[0],
                     .per_sample = shape.elements() / shape[0]};
  a.aligned = are_aligned(a.r, a.y) && a.per_sample % kPiece == 0;
  if (op.sample_rows > 0) {
    drop_rows(op, a, shape, stream);
  } else {
    drop_pieces<false><<<grid_for(a), kThreads, 0, stream>>>(a);
  }
  check_launch("dropout");
}

struct SumMap {
  Span x, r, y;
  float sign = 1.0f;

  struct Two {
    Raw x, r;
  };
  __device__ Two fetch(const Piece& piece) const { return {cuda::fetch(x, piece), cuda::fetch(r, piece)}; }
  __device__ void finish(const Piece& piece, const Two& raw) const {
    float sums[kPiece], values[kPiece];
    decode(raw.x, x.dtype, sums);
    decode(raw.r, r.dtype, values);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sums[i] = fmaf(values[i], sign, sums[i]);
    write(y, piece, sums);
  }
};

// What is taken back is added with its multipliers negated.
template <typename Sum>
void residual(const Call& call, cudaStream_t stream) {
  constexpr float kSign = std::is_same_v<Sum, ops::Subtract> ? -1.0f : 1.0f;
  const auto& op = std::get<Sum>(call.op);
  const base::Shape& shape = call.inputs[0].type.shape;
  const Span x = span_of(call.inputs[0]);
  const Span r = span_of(call.inputs[1]);
  const Span y = span_of(call.outputs[0]);
  if (shape.elements() == 0) return;
  if (op.rate <= 0.0) {
    launch_map(SumMap{x, r, y, kSign}, shape.elements(), are_aligned(x, r, y), stream);
  } else {
    DropoutArguments a{.x = x,
                       .r = r,
                       .y = y,
                       .site = dropout_site(op.rate, op.site, call.inputs[2], call.inputs[3]),
                       .samples = shape[0],
                       .per_sample = shape.elements() / shape[0]};
    a.aligned = are_aligned(x, r, y) && a.per_sample % kPiece == 0;
    a.site.scale *= kSign;
    if (op.sample_rows > 0) {
      drop_rows(op, a, shape, stream);
    } else {
      drop_pieces<true><<<grid_for(a), kThreads, 0, stream>>>(a);
    }
  }
  check_launch("residual");
}

constexpr Kernel kKernels[] = {
    {.op = "dropout", .name = "dropout.pieces", .refusal = refuse_other_floats, .launch = dropout},
    {.op = "residual", .name = "residual.pieces", .refusal = refuse_other_floats, .launch = residual<ops::Residual>},
    {.op = "subtract", .name = "subtract.pieces", .refusal = refuse_other_floats, .launch = residual<ops::Subtract>},
};

}  // namespace

std::span<const Kernel> dropout_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

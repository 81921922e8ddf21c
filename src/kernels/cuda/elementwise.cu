// Sums, conversions and activations: one pass over memory.
#include <algorithm>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/table.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

using ops::ActivationKind;

struct Two {
  Raw a, b;
};

// ---- sums and copies

struct AddMap {
  Span a, b, y;

  __device__ Two fetch(const Piece& piece) const { return {cuda::fetch(a, piece), cuda::fetch(b, piece)}; }
  __device__ void finish(const Piece& piece, const Two& raw) const {
    float left[kPiece], right[kPiece];
    decode(raw.a, a.dtype, left);
    decode(raw.b, b.dtype, right);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) left[i] += right[i];
    write(y, piece, left);
  }
};

struct CastMap {
  Span x, y;

  __device__ Raw fetch(const Piece& piece) const { return cuda::fetch(x, piece); }
  __device__ void finish(const Piece& piece, const Raw& raw) const {
    float values[kPiece];
    decode(raw, x.dtype, values);
    write(y, piece, values);
  }
};

void add(const Call& call, cudaStream_t stream) {
  const AddMap map{span_of(call.inputs[0]), span_of(call.inputs[1]), span_of(call.outputs[0])};
  launch_map(map, call.outputs[0].type.shape.elements(), are_aligned(map.a, map.b, map.y), stream);
  check_launch("add");
}

void cast(const Call& call, cudaStream_t stream) {
  const CastMap map{span_of(call.inputs[0]), span_of(call.outputs[0])};
  launch_map(map, call.outputs[0].type.shape.elements(), are_aligned(map.x, map.y), stream);
  check_launch("cast");
}

void copy(const Tensor& from, const Tensor& to, cudaStream_t stream) {
  if (from.data == to.data) return;
  check(cudaMemcpyAsync(to.data, from.data, static_cast<std::size_t>(to.type.bytes()), cudaMemcpyDeviceToDevice, stream), "copy");
}

void accumulate(const Call& call, cudaStream_t stream) {
  if (std::get<ops::Accumulate>(call.op).accumulate) return add(call, stream);
  copy(call.inputs[0], call.outputs[0], stream);
}

// Some columns of a matrix, to or from one that has only these.
void copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column, cudaStream_t stream) {
  const auto size = static_cast<std::size_t>(base::size_of(to.type.dtype));
  const auto pitch = [&](const Tensor& tensor) { return static_cast<std::size_t>(tensor.type.shape[-1]) * size; };
  const auto rows = static_cast<std::size_t>(to.type.shape.elements() / to.type.shape[-1]);
  check(cudaMemcpy2DAsync(to.as<std::byte>() + static_cast<std::size_t>(to_column) * size, pitch(to),
                          from.as<const std::byte>() + static_cast<std::size_t>(from_column) * size, pitch(from),
                          std::min(pitch(from), pitch(to)), rows, cudaMemcpyDeviceToDevice, stream),
        "copy columns");
}

void take_columns(const Call& call, cudaStream_t stream) {
  copy_columns(call.inputs[0], std::get<ops::TakeColumns>(call.op).first, call.outputs[0], 0, stream);
}

void put_columns(const Call& call, cudaStream_t stream) {
  copy_columns(call.inputs[0], 0, call.outputs[0], std::get<ops::PutColumns>(call.op).first, stream);
}

// A part of a dim, to or from the whole: a stretch of every row, if all dims behind it are the row's elements.
void copy_part(const Tensor& from, std::int64_t from_first, const Tensor& to, std::int64_t to_first, std::int64_t count, int dim,
               cudaStream_t stream) {
  if (count == 0) return;
  std::int64_t inner = base::size_of(to.type.dtype);
  for (int behind = dim + 1; behind < to.type.shape.rank(); ++behind) inner *= to.type.shape[behind];
  const auto bytes = [&](std::int64_t extent) { return static_cast<std::size_t>(extent * inner); };
  const auto rows = static_cast<std::size_t>(to.type.bytes() / (to.type.shape[dim] * inner));
  check(cudaMemcpy2DAsync(to.as<std::byte>() + bytes(to_first), bytes(to.type.shape[dim]), from.as<const std::byte>() + bytes(from_first),
                          bytes(from.type.shape[dim]), bytes(count), rows, cudaMemcpyDeviceToDevice, stream),
        "copy a part");
}

void put_part(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::PutPart>(call.op);
  const ops::PartOfDim& part = op.part;
  const Tensor& whole = call.outputs[0];
  if (!op.into) check(cudaMemsetAsync(whole.data, 0, static_cast<std::size_t>(whole.type.bytes()), stream), "put a part");
  copy_part(call.inputs[0], 0, whole, part.begin, part.count, part.dim, stream);
  if (!op.without_tail) copy_part(call.inputs[0], part.count, whole, part.tail_begin, part.tail, part.dim, stream);
}

void take_part(const Call& call, cudaStream_t stream) {
  const ops::PartOfDim& part = std::get<ops::TakePart>(call.op).part;
  copy_part(call.inputs[0], part.begin, call.outputs[0], 0, part.count, part.dim, stream);
  copy_part(call.inputs[0], part.tail_begin, call.outputs[0], part.count, part.tail, part.dim, stream);
}

void pad(const Call& call, cudaStream_t stream) {
  const Tensor& y = call.outputs[0];
  const std::int64_t first = std::get<ops::Pad>(call.op).valid * base::size_of(y.type.dtype);
  copy(call.inputs[0], y, stream);
  if (first == y.type.bytes()) return;
  check(cudaMemsetAsync(y.as<std::byte>() + first, 0, static_cast<std::size_t>(y.type.bytes() - first), stream), "pad");
}

// ---- activations

template <ActivationKind kind>
struct ActivationMap {
  Span x, y;

  __device__ Raw fetch(const Piece& piece) const { return cuda::fetch(x, piece); }
  __device__ void finish(const Piece& piece, const Raw& raw) const {
    float values[kPiece];
    decode(raw, x.dtype, values);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) values[i] = activation<kind>(values[i]);
    write(y, piece, values);
  }
};

template <ActivationKind kind>
struct ActivationGradMap {
  Span dy, x, dx;

  __device__ Two fetch(const Piece& piece) const { return {cuda::fetch(dy, piece), cuda::fetch(x, piece)}; }
  __device__ void finish(const Piece& piece, const Two& raw) const {
    float slope[kPiece], values[kPiece];
    decode(raw.a, dy.dtype, slope);
    decode(raw.b, x.dtype, values);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) slope[i] *= activation_slope<kind>(values[i]);
    write(dx, piece, slope);
  }
};

// The eight columns, gates and ups in turn, that a piece of four results comes from.
__device__ __forceinline__ Piece pairs_before(const Piece& piece) {
  return {2 * piece.first, piece.count >= 2 ? kPiece : 2 * piece.count, piece.whole};
}
__device__ __forceinline__ Piece pairs_after(const Piece& piece) {
  return {2 * piece.first + kPiece, piece.count > 2 ? 2 * piece.count - kPiece : 0, piece.whole};
}

__device__ __forceinline__ void split_pairs(const Two& raw, DType dtype, float (&gate)[kPiece], float (&up)[kPiece]) {
  float low[kPiece], high[kPiece];
  decode(raw.a, dtype, low);
  decode(raw.b, dtype, high);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    gate[i] = low[2 * i];
    up[i] = low[2 * i + 1];
    gate[i + 2] = high[2 * i];
    up[i + 2] = high[2 * i + 1];
  }
}

template <ActivationKind kind>
struct GateMap {
  Span x, y;

  __device__ Two fetch(const Piece& piece) const { return {cuda::fetch(x, pairs_before(piece)), cuda::fetch(x, pairs_after(piece))}; }
  __device__ void finish(const Piece& piece, const Two& raw) const {
    float gate[kPiece], up[kPiece];
    split_pairs(raw, x.dtype, gate, up);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) gate[i] = activation<kind>(gate[i]) * up[i];
    write(y, piece, gate);
  }
};

template <ActivationKind kind>
struct GateGradMap {
  Span dy, x, dx;

  struct Fetched {
    Raw dy;
    Two x;
  };
  __device__ Fetched fetch(const Piece& piece) const {
    return {cuda::fetch(dy, piece), {cuda::fetch(x, pairs_before(piece)), cuda::fetch(x, pairs_after(piece))}};
  }
  __device__ void finish(const Piece& piece, const Fetched& raw) const {
    float slope[kPiece], gate[kPiece], up[kPiece];
    decode(raw.dy, dy.dtype, slope);
    split_pairs(raw.x, x.dtype, gate, up);
    float low[kPiece], high[kPiece];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const ValueAndSlope first = activation_and_slope<kind>(gate[i]);
      const ValueAndSlope second = activation_and_slope<kind>(gate[i + 2]);
      low[2 * i] = slope[i] * up[i] * first.slope;
      low[2 * i + 1] = slope[i] * first.value;
      high[2 * i] = slope[i + 2] * up[i + 2] * second.slope;
      high[2 * i + 1] = slope[i + 2] * second.value;
    }
    write(dx, pairs_before(piece), low);
    write(dx, pairs_after(piece), high);
  }
};

void activate(const Call& call, cudaStream_t stream) {
  const Span x = span_of(call.inputs[0]);
  const Span y = span_of(call.outputs[0]);
  with_activation(std::get<ops::Activation>(call.op).kind, [&](auto kind) {
    launch_map(ActivationMap<decltype(kind)::value>{x, y}, call.outputs[0].type.shape.elements(), are_aligned(x, y), stream);
  });
  check_launch("activation");
}

void activate_grad(const Call& call, cudaStream_t stream) {
  const Span dy = span_of(call.inputs[0]);
  const Span x = span_of(call.inputs[1]);
  const Span dx = span_of(call.outputs[0]);
  with_activation(std::get<ops::ActivationGrad>(call.op).kind, [&](auto kind) {
    launch_map(ActivationGradMap<decltype(kind)::value>{dy, x, dx}, call.outputs[0].type.shape.elements(), are_aligned(dy, x, dx), stream);
  });
  check_launch("activation_grad");
}

// Pairs never straddle rows, so a gate is one over the whole tensor.
void gate(const Call& call, cudaStream_t stream) {
  const Span x = span_of(call.inputs[0]);
  const Span y = span_of(call.outputs[0]);
  with_activation(std::get<ops::Gate>(call.op).kind, [&](auto kind) {
    launch_map(GateMap<decltype(kind)::value>{x, y}, call.outputs[0].type.shape.elements(), are_aligned(x, y), stream);
  });
  check_launch("gate");
}

void gate_grad(const Call& call, cudaStream_t stream) {
  const Span dy = span_of(call.inputs[0]);
  const Span x = span_of(call.inputs[1]);
  const Span dx = span_of(call.outputs[0]);
  with_activation(std::get<ops::GateGrad>(call.op).kind, [&](auto kind) {
    launch_map(GateGradMap<decltype(kind)::value>{dy, x, dx}, call.inputs[0].type.shape.elements(), are_aligned(dy, x, dx), stream);
  });
  check_launch("gate_grad");
}

constexpr Kernel kKernels[] = {
    {.op = "take_columns", .name = "take_columns.memory", .launch = take_columns},
    {.op = "put_part", .name = "put_part.memory", .launch = put_part},
    {.op = "take_part", .name = "take_part.memory", .launch = take_part},
    {.op = "put_columns", .name = "put_columns.memory", .launch = put_columns},
    {.op = "pad", .name = "pad.memory", .launch = pad},
    {.op = "accumulate", .name = "accumulate.pieces", .refusal = refuse_other_floats, .launch = accumulate},
    {.op = "add", .name = "add.pieces", .refusal = refuse_other_floats, .launch = add},
    {.op = "cast", .name = "cast.pieces", .refusal = refuse_other_floats, .launch = cast},
    {.op = "activation", .name = "activation.pieces", .refusal = refuse_other_floats, .launch = activate},
    {.op = "activation_grad", .name = "activation_grad.pieces", .refusal = refuse_other_floats, .launch = activate_grad},
    {.op = "gate", .name = "gate.pieces", .refusal = refuse_other_floats, .launch = gate},
    {.op = "gate_grad", .name = "gate_grad.pieces", .refusal = refuse_other_floats, .launch = gate_grad},
};

}  // namespace

std::span<const Kernel> elementwise_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

// Sums of table rows, and ids seen from a part of a table. A block takes a token.
#include "kernels/cuda/checks.h"
#include "kernels/cuda/embedding_grad.h"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/table.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kMostTables = 8;

struct EmbedArguments {
  const std::int32_t* ids[kMostTables];
  Span table[kMostTables];
  std::int64_t rows[kMostTables];
  int tables = 0;
  Span y;
  std::int64_t width = 0;
  bool aligned = false;
};

// An id outside its table gives NaN: a device cannot stop, and a loss that is not a number is not overlooked.
__global__ void __launch_bounds__(kThreads) embed_tokens(const __grid_constant__ EmbedArguments a) {
  const std::int64_t token = blockIdx.x;
  for (std::int64_t column = threadIdx.x * kPiece; column < a.width; column += kThreads * kPiece) {
    float sum[kPiece] = {};
    const Piece columns = piece_at(column, a.width, a.aligned);
    for (int table = 0; table < a.tables; ++table) {
      const std::int32_t id = a.ids[table][token];
      if (id == ops::kElsewhere) continue;
      if (id < 0 || id >= a.rows[table]) {
#pragma unroll
        for (int i = 0; i < kPiece; ++i) sum[i] = __int_as_float(0x7FFFFFFF);
        continue;
      }
      float row[kPiece];
      read(a.table[table], {id * a.width + column, columns.count, columns.whole}, row);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) sum[i] += row[i];
    }
    write(a.y, {token * a.width + column, columns.count, columns.whole}, sum);
  }
}

std::optional<std::string> refuse_embed(const ops::KernelQuery& query) {
  if (std::get<ops::Embed>(query.op).tables > kMostTables) return "it has more than 8 tables";
  return refuse_other_floats(query);
}

void embed(const Call& call, cudaStream_t stream) {
  EmbedArguments a{};
  a.tables = static_cast<int>(std::get<ops::Embed>(call.op).tables);
  a.y = span_of(call.outputs[0]);
  a.width = call.outputs[0].type.shape[-1];
  a.aligned = is_aligned(a.y.data) && a.width % kPiece == 0;
  for (int table = 0; table < a.tables; ++table) {
    const auto input = static_cast<std::size_t>(2 * table);
    a.ids[table] = call.inputs[input].as<const std::int32_t>();
    a.table[table] = span_of(call.inputs[input + 1]);
    a.rows[table] = call.inputs[input + 1].type.shape[0];
    a.aligned = a.aligned && is_aligned(a.table[table].data);
  }
  const std::int64_t tokens = call.inputs[0].type.shape.elements();
  if (tokens == 0) return;
  embed_tokens<<<static_cast<unsigned>(tokens), kThreads, 0, stream>>>(a);
  check_launch("embed");
}

__global__ void shift(ops::ShiftIds op, const std::int32_t* ids, std::int32_t* shifted, std::int64_t count) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const std::int64_t id = ids[index];
  const bool here = id >= op.first && id < op.first + op.rows && id != op.hidden;
  shifted[index] = id < 0 ? ids[index] : here ? static_cast<std::int32_t>(id - op.first) : ops::kElsewhere;
}

void shift_ids(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::ShiftIds>(call.op);
  const std::int64_t count = call.inputs[0].type.shape.elements();
  if (count == 0) return;
  shift<<<blocks_for(count, 256), 256, 0, stream>>>(op, call.inputs[0].as<const std::int32_t>(), call.outputs[0].as<std::int32_t>(), count);
  check_launch("shift_ids");
}

constexpr Kernel kKernels[] = {
    {.op = "embed", .name = "embed.rows", .refusal = refuse_embed, .launch = embed},
    {.op = "shift_ids", .name = "shift_ids.elements", .launch = shift_ids},
    {.op = "embed_grad",
     .name = "embed_grad.sorted",
     .refusal = refuse_other_floats,
     .workspace = embed_grad_workspace,
     .launch = embed_grad},
};

}  // namespace

std::span<const Kernel> embedding_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

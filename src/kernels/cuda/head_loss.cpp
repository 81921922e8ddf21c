// The linear head and its cross-entropy, chunk of rows by chunk: logits by one product, losses and the logits' gradients by one
// pass over them, then dx and dw by two more. Three products in all, and the logits exist for one chunk only.
//
// Logits are f32 even where the operands are 16-bit: a probability is as good as the difference of two of them. Where speed comes before
// that (runs that need not be deterministic) those of bf16 operands are bf16, as PyTorch's are under autocast: 4 bytes less of the 10 that
// a logit moves. A vocabulary is often odd (50257), and products with odd extents are several times slower: they work on a copy of the
// weights with rows of zeros up to a multiple of 64, whose logits are left out and whose gradients are zero.
#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/head_softmax.h"
#include "kernels/cuda/lt_gemm.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/workspace.h"

namespace plimsoll::kernels::cuda {

namespace {

using base::DType;

constexpr std::int64_t kMostChunkBytes = std::int64_t{1} << 30;

std::int64_t round_up(std::int64_t count, std::int64_t to) { return (count + to - 1) / to * to; }

// Sizes and how rows are cut.
struct Head {
  std::int64_t rows, width, vocabulary;
  std::int64_t padded;  // vocabulary up to a multiple of 64: columns of the logits
  std::int64_t chunk;   // rows at once
  std::int64_t chunks;
  DType operands, logit, gradient;
  ops::HeadLoss op;

  Head(const ops::KernelQuery& query, LtChoice choice)
      : rows(query.inputs[0].shape.rows()),
        width(query.inputs[0].shape[-1]),
        vocabulary(query.inputs[1].shape[0]),
        padded(round_up(vocabulary, 64)),
        operands(query.inputs[0].dtype),
        logit(operands == DType::bf16 && choice == LtChoice::fastest ? DType::bf16 : DType::f32),
        gradient(std::get<ops::HeadLoss>(query.op).dtype),
        op(std::get<ops::HeadLoss>(query.op)) {
    const std::int64_t most = std::max<std::int64_t>(128, kMostChunkBytes / (padded * base::size_of(logit)) / 128 * 128);
    chunks = (rows + most - 1) / most;
    chunk = std::min(rows, round_up((rows + chunks - 1) / chunks, 128));
    chunks = (rows + chunk - 1) / chunk;
  }

  std::int64_t first_row(std::int64_t index) const { return index * chunk; }
  std::int64_t rows_of(std::int64_t index) const { return std::min(chunk, rows - index * chunk); }
  // Gradients of the logits lie over them; where they are half as wide, twice as many of them from row to row.
  std::int64_t gradient_stride() const { return padded * (base::size_of(logit) / base::size_of(operands)); }
  bool pads() const { return padded != vocabulary; }
  // Sums of 16-bit gradients over chunks are kept in f32, and padded ones where there is room for them.
  bool staged() const { return op.gradients && (pads() || (gradient != DType::f32 && chunks > 1)); }

  LtProblem logits(std::int64_t m) const {
    return {.m = m,
            .n = padded,
            .k = width,
            .b_transposed = true,
            .a_stride = width,
            .b_stride = width,
            .c_stride = padded,
            .operands = operands,
            .result = logit};
  }
  LtProblem dx(std::int64_t m) const {
    return {.m = m,
            .n = width,
            .k = padded,
            .a_stride = gradient_stride(),
            .b_stride = width,
            .c_stride = width,
            .operands = operands,
            .result = operands};
  }
  LtProblem dw(std::int64_t m, bool add) const {
    return {.m = padded,
            .n = width,
            .k = m,
            .a_transposed = true,
            .a_stride = gradient_stride(),
            .b_stride = width,
            .c_stride = width,
            .operands = operands,
            .result = staged() ? DType::f32 : gradient,
            .accumulate = add};
  }
};

struct Scratch {
  std::byte* logits;
  std::byte* weights;  // padded
  float* dw;           // staged
  float* dbias;
  std::byte* product;

  Scratch(const Head& head, Workspace& pieces)
      : logits(pieces.take<std::byte>(head.chunk * head.padded * base::size_of(head.logit))),
        weights(pieces.take<std::byte>(head.pads() ? head.padded * head.width * base::size_of(head.operands) : 0)),
        dw(pieces.take<float>(head.staged() ? head.padded * head.width : 0)),
        dbias(pieces.take<float>(head.op.gradients && head.op.bias ? head.vocabulary : 0)),
        product(pieces.take<std::byte>(head.logits(head.chunk).workspace())) {}
};

// The products of a chunk of so many rows.
struct Products {
  LtGemm logits;
  std::optional<LtGemm> dx;
  std::optional<LtGemm> dw_first;
  std::optional<LtGemm> dw_next;

  Products(const Head& head, std::int64_t rows, LtChoice choice) : logits(head.logits(rows), choice) {
    if (!head.op.gradients) return;
    dx.emplace(head.dx(rows), choice);
    dw_first.emplace(head.dw(rows, head.op.accumulate && !head.staged()), choice);
    if (head.chunks > 1) dw_next.emplace(head.dw(rows, true), choice);
  }
};

struct PreparedHead {
  Head head;
  Products whole;
  Products last;
};

std::optional<std::string> refuse(const ops::KernelQuery& query) {
  const DType dtype = query.inputs[0].dtype;
  if ((dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16) || query.inputs[1].dtype != dtype)
    return "operands are not all f32, bf16 or f16";
  const DType gradient = std::get<ops::HeadLoss>(query.op).dtype;
  if (gradient != DType::f32 && gradient != dtype) return "the gradients are neither f32 nor of the operands' type";
  return std::nullopt;
}

template <LtChoice kChoice>
std::int64_t workspace(const ops::KernelQuery& query) {
  Workspace pieces;
  Scratch(Head(query, kChoice), pieces);
  return pieces.bytes();
}

template <LtChoice kChoice>
Prepared prepare(const ops::KernelQuery& query) {
  const Head head(query, kChoice);
  return std::make_shared<PreparedHead>(
      PreparedHead{head, Products(head, head.chunk, kChoice), Products(head, head.rows_of(head.chunks - 1), kChoice)});
}

struct Operands {
  const Tensor& x;
  const Tensor& w;
  const void* bias;
  bool f32_bias;
  const std::int32_t* targets;
  const ops::StepScalars* scalars;
  const void* present_dw;
  const void* present_dbias;

  explicit Operands(const Call& call, const ops::HeadLoss& op)
      : x(call.inputs[0]),
        w(call.inputs[1]),
        bias(op.bias ? call.inputs[2].data : nullptr),
        f32_bias(op.bias && call.inputs[2].type.dtype == DType::f32) {
    const std::size_t next = op.bias ? 3 : 2;
    targets = call.inputs[next].as<const std::int32_t>();
    scalars = call.inputs[next + 1].as<const ops::StepScalars>();
    present_dw = op.accumulate ? call.inputs[next + 2].data : nullptr;
    present_dbias = op.accumulate && op.bias ? call.inputs[next + 3].data : nullptr;
  }
};

void launch(const Call& call, cudaStream_t stream) {
  const auto& prepared = *static_cast<const PreparedHead*>(call.prepared);
  const Head& head = prepared.head;
  const Operands in(call, head.op);
  Workspace pieces(call.workspace);
  const Scratch scratch(head, pieces);
  const std::int64_t row_bytes = head.width * base::size_of(head.operands);
  const void* weights = head.pads() ? scratch.weights : in.w.data;
  if (head.pads()) {
    const auto bytes = static_cast<std::size_t>(head.vocabulary * row_bytes);
    check(cudaMemcpyAsync(scratch.weights, in.w.data, bytes, cudaMemcpyDeviceToDevice, stream), "copying the head's weights");
    const auto rest = static_cast<std::size_t>((head.padded - head.vocabulary) * row_bytes);
    check(cudaMemsetAsync(scratch.weights + bytes, 0, rest, stream), "padding the head's weights");
  }
  for (std::int64_t index = 0; index < head.chunks; ++index) {
    const Products& products = index + 1 < head.chunks ? prepared.whole : prepared.last;
    const std::int64_t first = head.first_row(index);
    const std::byte* x = in.x.as<const std::byte>() + first * row_bytes;
    products.logits.launch({.a = x, .b = weights, .c = scratch.logits, .workspace = scratch.product}, stream);
    launch_softmax({scratch.logits, head.rows_of(index), head.vocabulary, head.padded, in.bias, in.f32_bias, in.targets + first,
                    call.outputs[0].as<float>() + first, head.logit},
                   head.op.gradients ? in.scalars : nullptr, head.operands, stream);
    if (!head.op.gradients) continue;
    products.dx->launch(
        {.a = scratch.logits, .b = weights, .c = call.outputs[1].as<std::byte>() + first * row_bytes, .workspace = scratch.product},
        stream);
    void* dw = head.staged() ? scratch.dw : call.outputs[2].data;
    const LtGemm& product = index == 0 ? *products.dw_first : *products.dw_next;
    product.launch({.a = scratch.logits, .b = x, .present = index == 0 ? in.present_dw : dw, .c = dw, .workspace = scratch.product},
                   stream);
    if (head.op.bias) {
      launch_column_sums(scratch.logits, head.operands, head.rows_of(index), head.vocabulary, head.gradient_stride(), index > 0,
                         scratch.dbias, stream);
    }
  }
  if (!head.op.gradients) return;
  if (head.staged())
    launch_finish_sums(scratch.dw, in.present_dw, head.vocabulary * head.width, head.gradient, call.outputs[2].data, stream);
  if (head.op.bias) launch_finish_sums(scratch.dbias, in.present_dbias, head.vocabulary, head.gradient, call.outputs[3].data, stream);
}

std::optional<std::string> refuse_fastest(const ops::KernelQuery& query) {
  if (query.deterministic) return "which algorithm is fastest is measured, and may be another in the next run";
  return refuse(query);
}

constexpr Kernel kKernels[] = {
    {.op = "head_loss",
     .name = "head_loss.cublaslt-fastest",
     .refusal = refuse_fastest,
     .workspace = workspace<LtChoice::fastest>,
     .prepare = prepare<LtChoice::fastest>,
     .launch = launch},
    {.op = "head_loss",
     .name = "head_loss.cublaslt",
     .refusal = refuse,
     .workspace = workspace<LtChoice::first>,
     .prepare = prepare<LtChoice::first>,
     .launch = launch},
};

}  // namespace

std::span<const Kernel> head_loss_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

// Rows are taken in chunks: their logits are made, turned into losses and, in place, into the gradient of the logits,
// and used up for dx and dw before the next chunk. Rows without a target are left out altogether, which for masked
// language models are most of them. A chunk is a compromise: each one packs the whole weight again and adds to the
// whole dw, and its logits take memory when the step is at its fullest.
//
// oneDNN's multiplications are settled for their sizes, while the number of rows with a target is only known at run
// time: there are chunks of a few sizes, each half of the one before, and the last is filled up with rows of zeros.
#include "kernels/cpu/head_loss.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/onednn_gemm.h"
#include "kernels/cpu/packed_gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/softmax_rows.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu {

namespace {

using base::DType;

constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20;
constexpr std::int64_t kLeastRows = 16;
constexpr std::int64_t kPackedBytes = 4;      // the f32 logit, which becomes its gradient in place
constexpr std::int64_t kOnednnBytes = 4 + 2;  // and the gradient in bf16

// The operands of one head_loss, from their types.
struct HeadShape {
  // bytes_per_logit: what a chunk stores of each logit.
  HeadShape(const ops::HeadLoss& op, const base::TensorType& x, const base::TensorType& w, std::int64_t bytes_per_logit)
      : rows(x.shape.rows()),
        width(w.shape[1]),
        vocab(w.shape[0]),
        x_dtype(x.dtype),
        w_dtype(w.dtype),
        dw_dtype(op.dtype),
        gradients(op.gradients),
        accumulate(op.accumulate),
        bias(op.bias) {
    const std::int64_t most = std::max(kLeastRows, kChunkBytes / (bytes_per_logit * vocab));
    const std::int64_t chunks = std::max<std::int64_t>(1, (rows + most - 1) / most);
    chunk_rows = std::max<std::int64_t>(1, (rows + chunks - 1) / chunks);
  }

  std::int64_t rows, width, vocab;
  DType x_dtype, w_dtype, dw_dtype;
  bool gradients, accumulate, bias;
  std::int64_t chunk_rows;
};

// ---- oneDNN's multiplications for a chunk of `rows` rows

struct Chunk {
  Chunk(const HeadShape& shape, std::optional<DType> bias, std::int64_t chunk_rows, int threads)
      : rows(chunk_rows),
        logits({.m = rows, .n = shape.vocab, .k = shape.width, .b_transposed = true, .c_dtype = DType::f32, .bias = bias}, threads) {
    if (!shape.gradients) return;
    gradients.emplace_back(OnednnGemm{.m = rows, .n = shape.width, .k = shape.vocab, .c_dtype = DType::bf16}, threads);
    for (const bool accumulate : {false, true}) {
      gradients.emplace_back(
          OnednnGemm{
              .m = shape.vocab, .n = shape.width, .k = rows, .a_transposed = true, .c_dtype = shape.dw_dtype, .accumulate = accumulate},
          threads);
    }
  }

  template <typename Visit>
  void for_each(Visit&& visit) {
    visit(logits);
    for (OnednnMatmul& matmul : gradients) visit(matmul);
  }
  const OnednnMatmul& dx() const { return gradients[0]; }
  const OnednnMatmul& dw(bool accumulate) const { return gradients[accumulate ? 2 : 1]; }

  std::int64_t rows;
  OnednnMatmul logits;
  std::vector<OnednnMatmul> gradients;
};

struct Chunks {
  explicit Chunks(const ops::KernelQuery& query) {
    const auto& op = std::get<ops::HeadLoss>(query.op);
    const HeadShape shape(op, query.inputs[0], query.inputs[1], kOnednnBytes);
    const std::optional<DType> bias = op.bias ? std::optional(query.inputs[2].dtype) : std::nullopt;
    std::int64_t rows = (shape.chunk_rows + kLeastRows - 1) / kLeastRows * kLeastRows;
    for (; rows >= kLeastRows; rows = rows / 2 / kLeastRows * kLeastRows) sizes.emplace_back(shape, bias, rows, query.threads);
  }

  // The largest that `rows` rows fill, else the smallest.
  const Chunk& fitting(std::int64_t rows) const {
    for (const Chunk& chunk : sizes) {
      if (chunk.rows <= rows) return chunk;
    }
    return sizes.back();
  }
  std::int64_t most_rows() const { return sizes.front().rows; }
  std::int64_t workspace() const {
    std::int64_t most = 0;
    for (const Chunk& chunk : sizes) {
      most = std::max(most, chunk.logits.workspace());
      for (const OnednnMatmul& matmul : chunk.gradients) most = std::max(most, matmul.workspace());
    }
    return most;
  }

  std::vector<Chunk> sizes;  // large to small
};

// ---- scratch

std::int64_t packed_bytes(const HeadShape& shape, int threads) {
  std::int64_t bytes = packed_gemm_workspace({shape.chunk_rows, shape.vocab, shape.width, DType::f32}, threads);
  if (!shape.gradients) return bytes;
  bytes = std::max(bytes, packed_gemm_workspace({shape.chunk_rows, shape.width, shape.vocab, shape.x_dtype}, threads));
  return std::max(bytes, packed_gemm_workspace({shape.vocab, shape.width, shape.chunk_rows, shape.dw_dtype}, threads));
}

struct HeadScratch {
  // narrows: the gradient of the logits is also wanted in bf16.
  HeadScratch(Workspace& workspace, const HeadShape& shape, std::int64_t chunk_rows, bool narrows, std::int64_t gemm_bytes)
      : rows(workspace.take<std::int32_t>(shape.rows)), logits(workspace.take<float>(chunk_rows * shape.vocab)) {
    const std::int64_t row_bytes = shape.width * base::size_of(shape.x_dtype);
    x = workspace.take<std::byte>(chunk_rows * row_bytes);
    if (shape.gradients) {
      dx = workspace.take<std::byte>(chunk_rows * row_bytes);
      if (shape.bias) dbias = workspace.take<float>(shape.vocab);
      if (narrows) narrow_logits = workspace.take<std::uint16_t>(chunk_rows * shape.vocab);
    }
    gemm = workspace.take<std::byte>(gemm_bytes);
  }

  std::int32_t* rows;  // those with a target
  float* logits;       // (chunk, V)
  std::byte* x;        // (chunk, C), where rows must be gathered
  std::byte* dx = nullptr;
  float* dbias = nullptr;
  std::uint16_t* narrow_logits = nullptr;  // (chunk, V) bf16
  std::byte* gemm;
};

// ---- the run

class HeadLossRun {
 public:
  // chunks: null for packed GEMM.
  HeadLossRun(const Call& call, const HeadShape& shape, const HeadScratch& scratch, const Chunks* chunks)
      : call_(call),
        op_(std::get<ops::HeadLoss>(call.op)),
        shape_(shape),
        scratch_(scratch),
        chunks_(chunks),
        targets_(call.inputs[op_.bias ? 3 : 2].as<const std::int32_t>()),
        row_bytes_(shape.width * base::size_of(shape.x_dtype)) {
    const auto& scalars = *call.inputs[op_.bias ? 4 : 3].as<const ops::StepScalars>();
    scale_ = scalars.loss_scale * scalars.inverse_tokens;
  }

  void run() {
    find_rows();
    accumulate_ = op_.accumulate;
    if (op_.gradients && op_.bias) std::fill_n(scratch_.dbias, shape_.vocab, 0.0f);
    for (std::int64_t first = 0; first < used_;) {
      const Chunk* chunk = chunks_ ? &chunks_->fitting(used_ - first) : nullptr;
      const std::int64_t count = std::min(chunk ? chunk->rows : shape_.chunk_rows, used_ - first);
      run_chunk(chunk, first, count);
      first += count;
    }
    if (op_.gradients) finish();
  }

 private:
  void find_rows() {
    auto* losses = call_.outputs[0].as<float>();
    for (std::int64_t row = 0; row < shape_.rows; ++row) {
      losses[row] = 0.0f;
      if (targets_[row] >= 0) scratch_.rows[used_++] = static_cast<std::int32_t>(row);
    }
    gathers_ = used_ != shape_.rows;
    if (op_.gradients && gathers_) std::memset(call_.outputs[1].data, 0, static_cast<std::size_t>(shape_.rows * row_bytes_));
  }

  void run_chunk(const Chunk* chunk, std::int64_t first, std::int64_t count) {
    const std::int64_t filled = chunk ? chunk->rows : count;  // with rows of zeros
    const bool in_place = !gathers_ && filled == count;
    const std::byte* x = in_place ? call_.inputs[0].as<const std::byte>() + first * row_bytes_ : gather(first, count, filled);
    make_logits(chunk, x, count);
    make_losses(first, count);
    if (!op_.gradients) return;
    if (op_.bias) add_to_dbias(count);
    if (chunk) std::memset(scratch_.narrow_logits + count * shape_.vocab, 0, static_cast<std::size_t>((filled - count) * shape_.vocab * 2));
    std::byte* const dx = in_place ? call_.outputs[1].as<std::byte>() + first * row_bytes_ : scratch_.dx;
    make_dx(chunk, dx, count);
    if (!in_place) scatter(first, count);
    make_dw(chunk, x, count);
    accumulate_ = true;
  }

  const std::byte* gather(std::int64_t first, std::int64_t count, std::int64_t filled) {
    const auto* x = call_.inputs[0].as<const std::byte>();
    for (std::int64_t index = 0; index < count; ++index) {
      std::memcpy(scratch_.x + index * row_bytes_, x + scratch_.rows[first + index] * row_bytes_, static_cast<std::size_t>(row_bytes_));
    }
    std::memset(scratch_.x + count * row_bytes_, 0, static_cast<std::size_t>((filled - count) * row_bytes_));
    return scratch_.x;
  }

  void scatter(std::int64_t first, std::int64_t count) {
    auto* dx = call_.outputs[1].as<std::byte>();
    for (std::int64_t index = 0; index < count; ++index) {
      std::memcpy(dx + scratch_.rows[first + index] * row_bytes_, scratch_.dx + index * row_bytes_, static_cast<std::size_t>(row_bytes_));
    }
  }

  void make_logits(const Chunk* chunk, const std::byte* x, std::int64_t count) {
    const void* bias = op_.bias ? call_.inputs[2].data : nullptr;
    if (chunk) return chunk->logits.run(x, call_.inputs[1].data, bias, scratch_.logits, scratch_.gemm);
    PackedGemm gemm{.m = count, .n = shape_.vocab, .k = shape_.width};
    gemm.a = {.data = x, .dtype = shape_.x_dtype, .stride = shape_.width};
    gemm.b = {.data = call_.inputs[1].data, .dtype = shape_.w_dtype, .stride = shape_.width, .transposed = true};
    gemm.c = scratch_.logits;
    gemm.c_stride = shape_.vocab;
    gemm.bias = bias;
    if (bias) gemm.bias_dtype = call_.inputs[2].type.dtype;
    packed_gemm(gemm, scratch_.gemm, call_.threads);
  }

  void make_losses(std::int64_t first, std::int64_t count) {
    auto* losses = call_.outputs[0].as<float>();
    parallel_ranges(call_.threads, count, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t index = begin; index < end; ++index) {
        float* logits = scratch_.logits + index * shape_.vocab;
        const std::int32_t row = scratch_.rows[first + index];
        const std::int32_t target = targets_[row];
        if (op_.gradients) {
          losses[row] = loss_with_gradient(logits, scale_, target, shape_.vocab);
          if (chunks_) narrow(DType::bf16, logits, scratch_.narrow_logits + index * shape_.vocab, shape_.vocab);
        } else {
          losses[row] = log_sum_exp(logits, shape_.vocab) - logits[target];
        }
      }
    });
  }

  // Columns are shared out, rows are added in order: the same bits for any number of threads.
  void add_to_dbias(std::int64_t count) {
    parallel_ranges(call_.threads, shape_.vocab, kBlock, [&](std::int64_t begin, std::int64_t end, int) {
      sum_parts(scratch_.logits + begin, count, shape_.vocab, scratch_.dbias + begin, scratch_.dbias + begin, end - begin);
    });
  }

  void make_dx(const Chunk* chunk, std::byte* dx, std::int64_t count) {
    if (chunk) return chunk->dx().run(scratch_.narrow_logits, call_.inputs[1].data, nullptr, dx, scratch_.gemm);
    PackedGemm gemm{.m = count, .n = shape_.width, .k = shape_.vocab};
    gemm.a = {.data = scratch_.logits, .dtype = DType::f32, .stride = shape_.vocab};
    gemm.b = {.data = call_.inputs[1].data, .dtype = shape_.w_dtype, .stride = shape_.width};
    gemm.c = dx;
    gemm.c_dtype = shape_.x_dtype;
    gemm.c_stride = shape_.width;
    packed_gemm(gemm, scratch_.gemm, call_.threads);
  }

  void make_dw(const Chunk* chunk, const std::byte* x, std::int64_t count) {
    void* const dw = call_.outputs[2].data;
    if (chunk) return chunk->dw(accumulate_).run(scratch_.narrow_logits, x, nullptr, dw, scratch_.gemm);
    PackedGemm gemm{.m = shape_.vocab, .n = shape_.width, .k = count};
    gemm.a = {.data = scratch_.logits, .dtype = DType::f32, .stride = shape_.vocab, .transposed = true};
    gemm.b = {.data = x, .dtype = shape_.x_dtype, .stride = shape_.width};
    gemm.c = dw;
    gemm.c_dtype = shape_.dw_dtype;
    gemm.c_stride = shape_.width;
    gemm.accumulate = accumulate_;
    packed_gemm(gemm, scratch_.gemm, call_.threads);
  }

  void finish() {
    // A batch without a single target still has a gradient: zero.
    if (!accumulate_) std::memset(call_.outputs[2].data, 0, static_cast<std::size_t>(call_.outputs[2].type.bytes()));
    if (op_.bias) finish_row_sums(call_.outputs[3], op_.accumulate ? &call_.inputs[6] : nullptr, scratch_.dbias, 0, 1, call_.threads);
  }

  const Call& call_;
  const ops::HeadLoss& op_;
  const HeadShape& shape_;
  const HeadScratch& scratch_;
  const Chunks* chunks_;
  const std::int32_t* targets_;
  std::int64_t row_bytes_;
  float scale_ = 0.0f;
  std::int64_t used_ = 0;
  bool gathers_ = false;
  bool accumulate_ = false;
};

HeadShape shape_of(const ops::KernelQuery& query, std::int64_t bytes_per_logit) {
  return {std::get<ops::HeadLoss>(query.op), query.inputs[0], query.inputs[1], bytes_per_logit};
}

}  // namespace

std::int64_t head_workspace(const ops::KernelQuery& query) {
  const HeadShape shape = shape_of(query, kPackedBytes);
  Workspace workspace;
  const HeadScratch scratch(workspace, shape, shape.chunk_rows, false, packed_bytes(shape, query.threads));
  return workspace.bytes();
}

void run_head_loss(const Call& call) {
  const HeadShape shape(std::get<ops::HeadLoss>(call.op), call.inputs[0].type, call.inputs[1].type, kPackedBytes);
  Workspace workspace(call.workspace);
  const HeadScratch scratch(workspace, shape, shape.chunk_rows, false, packed_bytes(shape, call.threads));
  HeadLossRun(call, shape, scratch, nullptr).run();
}

std::optional<std::string> refuse_onednn_head(const ops::KernelQuery& query) {
  const HeadShape shape = shape_of(query, kOnednnBytes);
  if (shape.x_dtype != DType::bf16 || shape.w_dtype != DType::bf16) return "x and the weight are not both bf16";
  if (shape.gradients && shape.dw_dtype != DType::f32 && shape.dw_dtype != DType::bf16) return "the gradient is neither f32 nor bf16";
  if (shape.bias && query.inputs[2].dtype != DType::f32 && query.inputs[2].dtype != DType::bf16) return "the bias is neither f32 nor bf16";
  Chunks chunks(query);
  std::optional<std::string> reason;
  for (Chunk& chunk : chunks.sizes) {
    chunk.for_each([&](const OnednnMatmul& matmul) {
      if (!reason) reason = matmul.refusal();
    });
  }
  return reason;
}

std::int64_t onednn_head_workspace(const ops::KernelQuery& query) {
  Chunks chunks(query);
  Workspace workspace;
  const HeadScratch scratch(workspace, shape_of(query, kOnednnBytes), chunks.most_rows(), true, chunks.workspace());
  return workspace.bytes();
}

Prepared prepare_onednn_head(const ops::KernelQuery& query) {
  auto chunks = std::make_shared<Chunks>(query);
  for (Chunk& chunk : chunks->sizes) chunk.for_each([](OnednnMatmul& matmul) { matmul.prepare(); });
  return chunks;
}

void run_onednn_head(const Call& call) {
  const auto& chunks = *static_cast<const Chunks*>(call.prepared);
  const HeadShape shape(std::get<ops::HeadLoss>(call.op), call.inputs[0].type, call.inputs[1].type, kOnednnBytes);
  Workspace workspace(call.workspace);
  const HeadScratch scratch(workspace, shape, chunks.most_rows(), true, chunks.workspace());
  HeadLossRun(call, shape, scratch, &chunks).run();
}

}  // namespace plimsoll::kernels::cpu

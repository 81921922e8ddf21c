// Cross-entropy over given logits, and fused with the head that makes them.
//
// head_loss takes rows in chunks: their logits are made, turned into losses and (in place) into the gradient of the
// logits, and used up for dx and dw before the next chunk. Rows without a target are left out altogether, which for
// masked language models are most of them. A chunk is a compromise: each one packs the whole weight again (and adds to
// the whole dw), and its logits take memory when the step is at its fullest.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/packed_gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/softmax_rows.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu {

namespace {

using base::DType;

constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20;

float gradient_scale(const Tensor& scalars) {
  const auto& numbers = *scalars.as<const ops::StepScalars>();
  return numbers.loss_scale * numbers.inverse_tokens;
}

// ---- logits given

std::int64_t row_buffers(const ops::KernelQuery& query) {
  const bool widens = query.inputs[0].dtype != DType::f32;
  return widens ? query.threads * padded_row(query.inputs[0].shape[-1]) * 4 : 0;
}

void run_cross_entropy(const Call& call) {
  const std::int64_t width = call.inputs[0].type.shape[-1];
  const auto* targets = call.inputs[1].as<const std::int32_t>();
  auto* losses = call.outputs[0].as<float>();
  auto* lses = call.outputs[1].as<float>();
  parallel_ranges(call.threads, call.inputs[0].type.shape.rows(), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* buffer = reinterpret_cast<float*>(call.workspace) + thread * padded_row(width);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* logits = read_f32(call.inputs[0], row * width, width, buffer);
      lses[row] = log_sum_exp(logits, width);
      losses[row] = targets[row] < 0 ? 0.0f : lses[row] - logits[targets[row]];
    }
  });
}

void run_cross_entropy_grad(const Call& call) {
  const std::int64_t width = call.inputs[0].type.shape[-1];
  const auto* targets = call.inputs[1].as<const std::int32_t>();
  const auto* lses = call.inputs[2].as<const float>();
  const float scale = gradient_scale(call.inputs[3]);
  const Tensor& grad = call.outputs[0];
  parallel_ranges(call.threads, call.inputs[0].type.shape.rows(), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* buffer = reinterpret_cast<float*>(call.workspace) + thread * padded_row(width);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* logits = read_f32(call.inputs[0], row * width, width, buffer);
      float* out = target_f32(grad, row * width, buffer);
      if (targets[row] < 0) {
        std::fill_n(out, width, 0.0f);
      } else {
        softmax_gradient(logits, lses[row], scale, targets[row], out, width);
      }
      finish_f32(grad, row * width, width, out);
    }
  });
}

// ---- head and loss

struct HeadShape {
  std::int64_t rows, width, vocab, chunk_rows;
  DType x_dtype, w_dtype;
  bool gradients, bias;
};

HeadShape head_shape(const ops::HeadLoss& op, const base::TensorType& x, const base::TensorType& w) {
  const std::int64_t rows = x.shape.rows();
  const std::int64_t most = std::max<std::int64_t>(16, kChunkBytes / (4 * w.shape[0]));
  const std::int64_t chunks = std::max<std::int64_t>(1, (rows + most - 1) / most);
  const std::int64_t chunk_rows = std::max<std::int64_t>(1, (rows + chunks - 1) / chunks);
  return {rows, w.shape[1], w.shape[0], chunk_rows, x.dtype, w.dtype, op.gradients, op.bias};
}

struct HeadScratch {
  HeadScratch(Workspace& workspace, const HeadShape& shape, DType dw_dtype, int threads)
      : rows(workspace.take<std::int32_t>(shape.rows)), logits(workspace.take<float>(shape.chunk_rows * shape.vocab)) {
    const std::int64_t element = base::size_of(shape.x_dtype);
    x = workspace.take<std::byte>(shape.chunk_rows * shape.width * element);
    std::int64_t gemm_bytes = packed_gemm_workspace({shape.chunk_rows, shape.vocab, shape.width, DType::f32}, threads);
    if (shape.gradients) {
      dx = workspace.take<std::byte>(shape.chunk_rows * shape.width * element);
      gemm_bytes = std::max(gemm_bytes, packed_gemm_workspace({shape.chunk_rows, shape.width, shape.vocab, shape.x_dtype}, threads));
      gemm_bytes = std::max(gemm_bytes, packed_gemm_workspace({shape.vocab, shape.width, shape.chunk_rows, dw_dtype}, threads));
      if (shape.bias) dbias = workspace.take<float>(shape.vocab);
    }
    gemm = workspace.take<std::byte>(gemm_bytes);
  }

  std::int32_t* rows;  // those with a target
  float* logits;       // (chunk, V)
  std::byte* x;        // (chunk, C), where rows must be gathered
  std::byte* dx = nullptr;
  float* dbias = nullptr;
  std::byte* gemm;
};

std::int64_t head_workspace(const ops::KernelQuery& query) {
  const auto& op = std::get<ops::HeadLoss>(query.op);
  Workspace workspace;
  const HeadScratch scratch(workspace, head_shape(op, query.inputs[0], query.inputs[1]), op.dtype, query.threads);
  return workspace.bytes();
}

class HeadLossRun {
 public:
  HeadLossRun(const Call& call, Workspace workspace)
      : call_(call),
        op_(std::get<ops::HeadLoss>(call.op)),
        shape_(head_shape(op_, call.inputs[0].type, call.inputs[1].type)),
        scratch_(workspace, shape_, op_.dtype, call.threads),
        targets_(call.inputs[op_.bias ? 3 : 2].as<const std::int32_t>()),
        scale_(gradient_scale(call.inputs[op_.bias ? 4 : 3])) {}

  void run() {
    find_rows();
    accumulate_ = op_.accumulate;
    if (op_.gradients && op_.bias) std::fill_n(scratch_.dbias, shape_.vocab, 0.0f);
    for (std::int64_t first = 0; first < used_; first += shape_.chunk_rows) run_chunk(first, std::min(shape_.chunk_rows, used_ - first));
    if (op_.gradients) finish();
  }

 private:
  std::int64_t row_bytes() const { return shape_.width * base::size_of(shape_.x_dtype); }

  void find_rows() {
    used_ = 0;
    auto* losses = call_.outputs[0].as<float>();
    for (std::int64_t row = 0; row < shape_.rows; ++row) {
      losses[row] = 0.0f;
      if (targets_[row] >= 0) scratch_.rows[used_++] = static_cast<std::int32_t>(row);
    }
    gathers_ = used_ != shape_.rows;
    if (op_.gradients && gathers_) std::memset(call_.outputs[1].data, 0, static_cast<std::size_t>(shape_.rows * row_bytes()));
  }

  const std::byte* chunk_x(std::int64_t first, std::int64_t count) {
    const auto* x = call_.inputs[0].as<const std::byte>();
    if (!gathers_) return x + first * row_bytes();
    for (std::int64_t index = 0; index < count; ++index) {
      std::memcpy(scratch_.x + index * row_bytes(), x + scratch_.rows[first + index] * row_bytes(), static_cast<std::size_t>(row_bytes()));
    }
    return scratch_.x;
  }

  void run_chunk(std::int64_t first, std::int64_t count) {
    const std::byte* x = chunk_x(first, count);
    make_logits(x, count);
    make_losses(first, count);
    if (!op_.gradients) return;
    make_dx(first, count);
    make_dw(x, count);
    if (op_.bias) sum_parts(scratch_.logits, count, shape_.vocab, scratch_.dbias, scratch_.dbias, shape_.vocab);
  }

  void make_logits(const std::byte* x, std::int64_t count) {
    PackedGemm gemm{.m = count, .n = shape_.vocab, .k = shape_.width};
    gemm.a = {.data = x, .dtype = shape_.x_dtype, .stride = shape_.width};
    gemm.b = {.data = call_.inputs[1].data, .dtype = shape_.w_dtype, .stride = shape_.width, .transposed = true};
    gemm.c = scratch_.logits;
    gemm.c_stride = shape_.vocab;
    if (op_.bias) {
      gemm.bias = call_.inputs[2].data;
      gemm.bias_dtype = call_.inputs[2].type.dtype;
    }
    packed_gemm(gemm, scratch_.gemm, call_.threads);
  }

  void make_losses(std::int64_t first, std::int64_t count) {
    auto* losses = call_.outputs[0].as<float>();
    parallel_ranges(call_.threads, count, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t index = begin; index < end; ++index) {
        float* logits = scratch_.logits + index * shape_.vocab;
        const std::int32_t row = scratch_.rows[first + index];
        const float lse = log_sum_exp(logits, shape_.vocab);
        losses[row] = lse - logits[targets_[row]];
        if (op_.gradients) softmax_gradient(logits, lse, scale_, targets_[row], logits, shape_.vocab);
      }
    });
  }

  void make_dx(std::int64_t first, std::int64_t count) {
    auto* all = call_.outputs[1].as<std::byte>();
    PackedGemm gemm{.m = count, .n = shape_.width, .k = shape_.vocab};
    gemm.a = {.data = scratch_.logits, .dtype = DType::f32, .stride = shape_.vocab};
    gemm.b = {.data = call_.inputs[1].data, .dtype = shape_.w_dtype, .stride = shape_.width};
    gemm.c = gathers_ ? scratch_.dx : all + first * row_bytes();
    gemm.c_dtype = shape_.x_dtype;
    gemm.c_stride = shape_.width;
    packed_gemm(gemm, scratch_.gemm, call_.threads);
    for (std::int64_t index = 0; gathers_ && index < count; ++index) {
      std::memcpy(all + scratch_.rows[first + index] * row_bytes(), scratch_.dx + index * row_bytes(),
                  static_cast<std::size_t>(row_bytes()));
    }
  }

  void make_dw(const std::byte* x, std::int64_t count) {
    const Tensor& dw = call_.outputs[2];
    PackedGemm gemm{.m = shape_.vocab, .n = shape_.width, .k = count};
    gemm.a = {.data = scratch_.logits, .dtype = DType::f32, .stride = shape_.vocab, .transposed = true};
    gemm.b = {.data = x, .dtype = shape_.x_dtype, .stride = shape_.width};
    gemm.c = dw.data;
    gemm.c_dtype = dw.type.dtype;
    gemm.c_stride = shape_.width;
    gemm.accumulate = accumulate_;
    packed_gemm(gemm, scratch_.gemm, call_.threads);
    accumulate_ = true;
  }

  void finish() {
    // A batch without a single target still has a gradient: zero.
    if (!accumulate_) std::memset(call_.outputs[2].data, 0, static_cast<std::size_t>(call_.outputs[2].type.bytes()));
    if (op_.bias) finish_row_sums(call_.outputs[3], op_.accumulate ? &call_.inputs[6] : nullptr, scratch_.dbias, 0, 1, call_.threads);
  }

  const Call& call_;
  const ops::HeadLoss& op_;
  HeadShape shape_;
  HeadScratch scratch_;
  const std::int32_t* targets_;
  float scale_;
  std::int64_t used_ = 0;
  bool gathers_ = false;
  bool accumulate_ = false;
};

void run_head_loss(const Call& call) { HeadLossRun(call, Workspace(call.workspace)).run(); }

constexpr std::array kKernels{
    Kernel{.op = "cross_entropy",
           .name = "cross_entropy.simd",
           .refusal = refuse_other_floats,
           .workspace = row_buffers,
           .run = run_cross_entropy},
    Kernel{.op = "cross_entropy_grad",
           .name = "cross_entropy_grad.simd",
           .refusal = refuse_other_floats,
           .workspace = row_buffers,
           .run = run_cross_entropy_grad},
    Kernel{
        .op = "head_loss", .name = "head_loss.chunked", .refusal = refuse_other_floats, .workspace = head_workspace, .run = run_head_loss},
};

}  // namespace

std::span<const Kernel> loss_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu

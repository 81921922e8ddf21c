// Layer and RMS normalisation of rows, with the residual sum before it, and their gradient.
//
// The gradients of weight and bias are sums over rows. Rows are cut in blocks that depend on the shape alone; each
// block is summed by one thread and the blocks are added in order, so the bits do not depend on the thread count.
#include <algorithm>
#include <array>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/qk_norm.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cpu {

namespace {

// Rows that pay for waking a thread.
std::int64_t row_grain(std::int64_t width) { return std::max<std::int64_t>(1, 8192 / std::max<std::int64_t>(width, 1)); }

// ---- norm

struct NormOperands {
  const Tensor& x;
  const Tensor* r = nullptr;
  const Tensor& weight;
  const Tensor* bias = nullptr;
  const Tensor* samples = nullptr;
  const Tensor* scalars = nullptr;
  std::int64_t first_row = 0;    // of the micro-batch's rows
  std::int64_t sample_rows = 0;  // rows of a sample
  const Tensor* sum = nullptr;
  const Tensor& y;
  float* stats;
};

NormOperands operands_of(const Call& call, const ops::Norm& op) {
  const std::size_t weight = op.residual ? 2 : 1;
  const std::size_t samples = weight + (op.bias ? 2 : 1);
  const bool drops = op.residual && op.rate > 0.0;
  return {.x = call.inputs[0],
          .r = op.residual ? &call.inputs[1] : nullptr,
          .weight = call.inputs[weight],
          .bias = op.bias ? &call.inputs[weight + 1] : nullptr,
          .samples = drops ? &call.inputs[samples] : nullptr,
          .scalars = drops ? &call.inputs[samples + 1] : nullptr,
          .first_row = op.first_row,
          .sample_rows = op.sample_rows > 0 ? op.sample_rows : call.inputs[0].type.shape.rows() / call.inputs[0].type.shape[0],
          .sum = op.residual ? &call.outputs[0] : nullptr,
          .y = call.outputs[op.residual ? 1 : 0],
          .stats = call.outputs[op.residual ? 2 : 1].as<float>()};
}

// Buffers of one row for each thread, and the weight and bias in f32.
struct NormScratch {
  NormScratch(Workspace& workspace, std::int64_t width, int threads)
      : weight(workspace.take<float>(width)),
        bias(workspace.take<float>(width)),
        rows(workspace.take<float>(threads * kRows * padded_row(width))),
        row_width(width) {}

  static constexpr std::int64_t kRows = 3;
  float* row(int thread, int which) const { return rows + (thread * kRows + which) * padded_row(row_width); }

  float* weight;
  float* bias;
  float* rows;
  std::int64_t row_width;
};

std::int64_t norm_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  NormScratch(workspace, query.inputs[0].shape[-1], query.threads);
  return workspace.bytes();
}

// sum = x + dropout(r), as it is stored: what is normalised must be what the backward pass will read.
const float* sum_residual(const NormOperands& op, const DropoutMask& mask, const NormScratch& scratch, std::int64_t row, int thread) {
  const std::int64_t width = scratch.row_width;
  const float* x = read_f32(op.x, row * width, width, scratch.row(thread, 0));
  const float* r = read_f32(*op.r, row * width, width, scratch.row(thread, 1));
  const float* multipliers = nullptr;
  if (op.samples != nullptr) {
    const std::int64_t of_all = op.first_row + row;
    const auto sample = static_cast<std::uint32_t>(op.samples->as<const std::int32_t>()[of_all / op.sample_rows]);
    dropout_multipliers(mask, sample, static_cast<std::uint64_t>(of_all % op.sample_rows * width), width, scratch.row(thread, 2));
    multipliers = scratch.row(thread, 2);
  }
  float* sum = target_f32(*op.sum, row * width, scratch.row(thread, 0));
  add_residual(x, r, multipliers, sum, width);
  finish_f32(*op.sum, row * width, width, sum);
  return read_f32(*op.sum, row * width, width, scratch.row(thread, 0));
}

void run_norm(const Call& call) {
  const auto& norm = std::get<ops::Norm>(call.op);
  const NormOperands op = operands_of(call, norm);
  const std::int64_t width = op.x.type.shape[-1];
  Workspace workspace(call.workspace);
  const NormScratch scratch(workspace, width, call.threads);
  const float* weight = read_f32(op.weight, 0, width, scratch.weight);
  const float* bias = op.bias == nullptr ? nullptr : read_f32(*op.bias, 0, width, scratch.bias);
  const DropoutMask mask =
      op.scalars == nullptr ? DropoutMask{} : dropout_mask(norm.rate, norm.site, *op.scalars->as<const ops::StepScalars>());
  parallel_ranges(call.threads, op.x.type.shape.rows(), row_grain(width), [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x =
          op.r == nullptr ? read_f32(op.x, row * width, width, scratch.row(thread, 0)) : sum_residual(op, mask, scratch, row, thread);
      const RowStats stats = norm.kind == ops::NormKind::layer ? layer_stats(x, width, norm.eps) : rms_stats(x, width, norm.eps);
      op.stats[2 * row] = stats.mean;
      op.stats[2 * row + 1] = stats.inverse_deviation;
      float* y = target_f32(op.y, row * width, scratch.row(thread, 0));
      normalise_row(x, stats, weight, bias, y, width);
      finish_f32(op.y, row * width, width, y);
    }
  });
}

// ---- norm_grad

// Partial sums of each row block (dweight, then dbias), buffers of one row for each thread, the weight in f32.
struct NormGradScratch {
  NormGradScratch(Workspace& workspace, const RowBlocks& blocks, std::int64_t width, int threads)
      : stride(padded_row(width)),
        weight(workspace.take<float>(width)),
        partials(workspace.take<float>(blocks.count * 2 * stride)),
        rows(workspace.take<float>(threads * kRows * padded_row(width))),
        row_width(width) {}

  static constexpr std::int64_t kRows = 3;
  float* row(int thread, int which) const { return rows + (thread * kRows + which) * padded_row(row_width); }
  float* dweight(std::int64_t block) const { return partials + block * 2 * stride; }
  float* dbias(std::int64_t block) const { return dweight(block) + stride; }

  std::int64_t stride;
  float* weight;
  float* partials;
  float* rows;
  std::int64_t row_width;
};

std::int64_t norm_grad_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  const base::Shape& shape = query.inputs[1].shape;
  NormGradScratch(workspace, row_blocks(shape.rows()), shape[-1], query.threads);
  return workspace.bytes();
}

void grad_of_row(const Call& call, const NormGradScratch& scratch, const float* weight, std::int64_t block, std::int64_t row, int thread) {
  const auto& op = std::get<ops::NormGrad>(call.op);
  const std::int64_t width = scratch.row_width;
  const std::int64_t first = row * width;
  const float* stats = call.inputs[3].as<const float>() + 2 * row;
  const Tensor& dx = call.outputs[0];
  RowGrad grad{.dy = read_f32(call.inputs[0], first, width, scratch.row(thread, 0)),
               .x = read_f32(call.inputs[1], first, width, scratch.row(thread, 1)),
               .weight = weight,
               .dsum = op.has_dsum ? read_f32(call.inputs[4], first, width, scratch.row(thread, 2)) : nullptr,
               .stats = {stats[0], stats[1]},
               .centred = op.kind == ops::NormKind::layer,
               .dx = target_f32(dx, first, scratch.row(thread, 0)),
               .dweight = scratch.dweight(block),
               .dbias = op.bias ? scratch.dbias(block) : nullptr};
  normalise_row_grad(grad, width);
  finish_f32(dx, first, width, grad.dx);
}

void run_norm_grad(const Call& call) {
  const auto& op = std::get<ops::NormGrad>(call.op);
  const base::Shape& shape = call.inputs[1].type.shape;
  const std::int64_t width = shape[-1];
  const RowBlocks blocks = row_blocks(shape.rows());
  Workspace workspace(call.workspace);
  const NormGradScratch scratch(workspace, blocks, width, call.threads);
  const float* weight = read_f32(call.inputs[2], 0, width, scratch.weight);
  parallel_ranges(call.threads, blocks.count, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t block = begin; block < end; ++block) {
      std::fill_n(scratch.dweight(block), 2 * scratch.stride, 0.0f);
      for (std::int64_t row = blocks.first(block); row < blocks.end(block); ++row) grad_of_row(call, scratch, weight, block, row, thread);
    }
  });
  const std::size_t present = op.has_dsum ? 5 : 4;
  finish_row_sums(call.outputs[1], op.accumulate ? &call.inputs[present] : nullptr, scratch.dweight(0), 2 * scratch.stride, blocks.count,
                  call.threads);
  if (!op.bias) return;
  finish_row_sums(call.outputs[2], op.accumulate ? &call.inputs[present + 1] : nullptr, scratch.dbias(0), 2 * scratch.stride, blocks.count,
                  call.threads);
}

constexpr std::array kKernels{
    Kernel{.op = "norm", .name = "norm.simd", .refusal = refuse_other_floats, .workspace = norm_workspace, .run = run_norm},
    Kernel{.op = "norm_grad",
           .name = "norm_grad.simd",
           .refusal = refuse_other_floats,
           .workspace = norm_grad_workspace,
           .run = run_norm_grad},
    Kernel{.op = "qk_norm", .name = "qk_norm.simd", .refusal = refuse_other_floats, .workspace = qk_norm_workspace, .run = run_qk_norm},
    Kernel{.op = "qk_norm_grad",
           .name = "qk_norm_grad.simd",
           .refusal = refuse_other_floats,
           .workspace = qk_norm_grad_workspace,
           .run = run_qk_norm_grad},
};

}  // namespace

std::span<const Kernel> norm_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu

// Cross-entropy over given logits, and the table of losses; head_loss is in a file of its own.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/head_loss.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/softmax_rows.h"
#include "kernels/cpu/table.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu {

namespace {

using base::DType;

float gradient_scale(const Tensor& scalars) {
  const auto& numbers = *scalars.as<const ops::StepScalars>();
  return numbers.loss_scale * numbers.inverse_tokens;
}

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

void run_cross_entropy_part(const Call& call) {
  const std::int64_t width = call.inputs[0].type.shape[-1];
  const auto* targets = call.inputs[1].as<const std::int32_t>();
  auto* stats = call.outputs[0].as<float>();
  parallel_ranges(call.threads, call.inputs[0].type.shape.rows(), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* buffer = reinterpret_cast<float*>(call.workspace) + thread * padded_row(width);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* logits = read_f32(call.inputs[0], row * width, width, buffer);
      stats[2 * row] = log_sum_exp(logits, width);
      const bool here = targets[row] >= 0 && targets[row] != ops::kElsewhere;
      stats[2 * row + 1] = here ? logits[targets[row]] : 0.0f;
    }
  });
}

void run_cross_entropy_merge(const Call& call) {
  const std::int64_t members = std::get<ops::CrossEntropyMerge>(call.op).members;
  const std::int64_t rows = call.inputs[1].type.shape.elements();
  const auto* all = call.inputs[0].as<const float>();
  const auto* targets = call.inputs[1].as<const std::int32_t>();
  auto* losses = call.outputs[0].as<float>();
  auto* lses = call.outputs[1].as<float>();
  for (std::int64_t row = 0; row < rows; ++row) {
    float largest = all[2 * row];
    for (std::int64_t member = 1; member < members; ++member) largest = std::max(largest, all[2 * (member * rows + row)]);
    double sum = 0.0;
    float hit = 0.0f;
    for (std::int64_t member = 0; member < members; ++member) {
      sum += std::exp(static_cast<double>(all[2 * (member * rows + row)] - largest));
      hit += all[2 * (member * rows + row) + 1];
    }
    lses[row] = largest + static_cast<float>(std::log(sum));
    losses[row] = targets[row] < 0 ? 0.0f : lses[row] - hit;
  }
}

constexpr std::array kKernels{
    Kernel{.op = "cross_entropy_part",
           .name = "cross_entropy_part.simd",
           .refusal = refuse_other_floats,
           .workspace = row_buffers,
           .run = run_cross_entropy_part},
    Kernel{.op = "cross_entropy_merge", .name = "cross_entropy_merge.host", .run = run_cross_entropy_merge},
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

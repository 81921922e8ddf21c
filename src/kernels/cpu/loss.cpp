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

// What a row's loss counts: as the step scalars say, or with a weight of its own.
struct RowFactors {
  explicit RowFactors(const Tensor& from) {
    if (from.type != ops::step_scalars_type()) {
      weights = from.as<const float>();
      return;
    }
    const auto& numbers = *from.as<const ops::StepScalars>();
    factor = numbers.loss_scale * numbers.inverse_tokens;
  }
  float operator[](std::int64_t row) const { return weights == nullptr ? factor : weights[row]; }

  const float* weights = nullptr;
  float factor = 0.0f;
};

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
  const RowFactors factors(call.inputs[3]);
  const Tensor& grad = call.outputs[0];
  parallel_ranges(call.threads, call.inputs[0].type.shape.rows(), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* buffer = reinterpret_cast<float*>(call.workspace) + thread * padded_row(width);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* logits = read_f32(call.inputs[0], row * width, width, buffer);
      float* out = target_f32(grad, row * width, buffer);
      if (targets[row] < 0) {
        std::fill_n(out, width, 0.0f);
      } else {
        softmax_gradient(logits, lses[row], factors[row], targets[row], out, width);
      }
      finish_f32(grad, row * width, width, out);
    }
  });
}

constexpr std::int64_t kSecondRows = 3;

std::int64_t second_row_buffers(const ops::KernelQuery& query) { return kSecondRows * row_buffers(query); }

void run_cross_entropy_grad_grad(const Call& call) {
  const std::int64_t width = call.inputs[1].type.shape[-1];
  const auto* targets = call.inputs[2].as<const std::int32_t>();
  const auto* lses = call.inputs[3].as<const float>();
  const RowFactors factors(call.inputs[4]);
  const Tensor& grad = call.outputs[0];
  float* dweights = call.outputs.size() > 1 ? call.outputs[1].as<float>() : nullptr;
  parallel_ranges(call.threads, grad.type.shape.rows(), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* buffers = reinterpret_cast<float*>(call.workspace) + thread * kSecondRows * padded_row(width);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* arrived = read_f32(call.inputs[0], row * width, width, buffers);
      const float* logits = read_f32(call.inputs[1], row * width, width, buffers + padded_row(width));
      float* out = target_f32(grad, row * width, buffers + 2 * padded_row(width));
      float dweight = 0.0f;
      if (targets[row] < 0) {
        std::fill_n(out, width, 0.0f);
      } else {
        dweight = softmax_second(arrived, logits, lses[row], factors[row], out, width);
        if (targets[row] < width) dweight -= arrived[targets[row]];
      }
      if (dweights != nullptr) dweights[row] = dweight;
      finish_f32(grad, row * width, width, out);
    }
  });
}

void run_loss_weights(const Call& call) {
  const auto& op = std::get<ops::LossWeights>(call.op);
  std::fill_n(call.outputs[0].as<float>(), op.rows, static_cast<float>(op.factor) * RowFactors(call.inputs[0])[0]);
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
    Kernel{.op = "cross_entropy_grad_grad",
           .name = "cross_entropy_grad_grad.simd",
           .refusal = refuse_other_floats,
           .workspace = second_row_buffers,
           .run = run_cross_entropy_grad_grad},
    Kernel{.op = "loss_weights", .name = "loss_weights.host", .run = run_loss_weights},
    Kernel{
        .op = "head_loss", .name = "head_loss.chunked", .refusal = refuse_other_floats, .workspace = head_workspace, .run = run_head_loss},
};

}  // namespace

std::span<const Kernel> loss_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu

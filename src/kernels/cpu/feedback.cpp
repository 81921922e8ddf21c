// Sums of parts, and feedback of what a codec lost: a pass over memory each.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu {

namespace {

using Buffer = std::array<float, kBlock>;

// Calls body(first element, count) for stretches of at most kBlock elements.
template <typename Body>
void for_each_block(const Call& call, std::int64_t elements, const Body& body) {
  parallel_ranges(call.threads, elements, kBlock, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t first = begin; first < end; first += kBlock) body(first, std::min(kBlock, end - first));
  });
}

float loss_scale(const Call& call) { return call.inputs[0].as<const ops::StepScalars>()->loss_scale; }

void run_add_error(const Call& call) {
  const float scale = loss_scale(call);
  const auto* error = call.inputs[2].as<const float>();
  auto* sum = call.outputs[0].as<float>();
  const std::int64_t known = call.inputs[2].type.shape.elements();
  for_each_block(call, call.outputs[0].type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    widen(call.inputs[1].type.dtype, element_address(call.inputs[1], first), sum + first, count);
    for (std::int64_t index = first; index < std::min(first + count, known); ++index) sum[index] += scale * error[index];
  });
}

void run_keep_error(const Call& call) {
  const float scale = loss_scale(call);
  const auto* z = call.inputs[1].as<const float>();
  const auto* y = call.inputs[2].as<const float>();
  auto* error = call.outputs[0].as<float>();
  for_each_block(call, call.outputs[0].type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t index = first; index < first + count; ++index) {
      const float lost = (z[index] - y[index]) / scale;
      error[index] = std::isfinite(lost) ? lost : 0.0f;
    }
  });
}

// Mostly nothing: the state is where it should be.
void run_undo_skipped(const Call& call) {
  const bool skipped = call.inputs[0].as<const ops::StepScalars>()->skip != 0;
  const auto* from = call.inputs[skipped ? 2 : 1].as<const float>();
  auto* state = call.outputs[0].as<float>();
  if (from == state) return;
  for_each_block(call, call.outputs[0].type.shape.elements(),
                 [&](std::int64_t first, std::int64_t count) { std::copy_n(from + first, count, state + first); });
}

void run_sum_parts(const Call& call) {
  const std::int64_t members = std::get<ops::SumParts>(call.op).members;
  const Tensor& sum = call.outputs[0];
  const std::int64_t elements = sum.type.shape.elements();
  for_each_block(call, elements, [&](std::int64_t first, std::int64_t count) {
    Buffer total;
    widen(call.inputs[0].type.dtype, element_address(call.inputs[0], first), total.data(), count);
    for (std::int64_t member = 1; member < members; ++member) {
      Buffer buffer;
      const float* part = read_f32(call.inputs[0], member * elements + first, count, buffer.data());
      for (std::int64_t index = 0; index < count; ++index) total[static_cast<std::size_t>(index)] += part[index];
    }
    narrow(sum.type.dtype, total.data(), element_address(sum, first), count);
  });
}

constexpr std::array kKernels{
    Kernel{.op = "add_error", .name = "add_error.blocks", .refusal = refuse_other_floats, .run = run_add_error},
    Kernel{.op = "keep_error", .name = "keep_error.blocks", .refusal = refuse_other_floats, .run = run_keep_error},
    Kernel{.op = "undo_skipped", .name = "undo_skipped.blocks", .refusal = refuse_other_floats, .run = run_undo_skipped},
    Kernel{.op = "sum_parts", .name = "sum_parts.blocks", .refusal = refuse_other_floats, .run = run_sum_parts},
};

}  // namespace

std::span<const Kernel> feedback_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu

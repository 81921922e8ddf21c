// Operators that remember: a pass over x, and the state in place.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "ops/op.h"

namespace plimsoll::kernels::cpu {

namespace {

// Columns that are summed at a time: a cache line of bf16, so that no two threads share one.
constexpr std::int64_t kColumns = 32;

void run_running_mean(const Call& call) {
  const double momentum = std::get<ops::RunningMean>(call.op).momentum;
  const Tensor& x = call.inputs[0];
  const std::int64_t rows = x.type.shape.rows();
  const std::int64_t width = x.type.shape[-1];
  const auto* before = call.inputs[1].as<const float>();
  auto* mean = call.outputs[0].as<float>();
  parallel_ranges(call.threads, width, kColumns, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t first = begin; first < end; first += kColumns) {
      const std::int64_t count = std::min(kColumns, end - first);
      std::array<double, kColumns> sums{};
      std::array<float, kColumns> widened;
      for (std::int64_t row = 0; row < rows; ++row) {
        const float* values = read_f32(x, row * width + first, count, widened.data());
        for (std::int64_t column = 0; column < count; ++column) sums[static_cast<std::size_t>(column)] += values[column];
      }
      for (std::int64_t column = 0; column < count; ++column) {
        const double batch = sums[static_cast<std::size_t>(column)] / static_cast<double>(rows);
        mean[first + column] = static_cast<float>((1.0 - momentum) * before[first + column] + momentum * batch);
      }
    }
  });
}

void run_round_with_error(const Call& call) {
  const Tensor& x = call.inputs[0];
  const Tensor& rounded = call.outputs[0];
  const auto* before = call.inputs[1].as<const float>();
  auto* error = call.outputs[1].as<float>();
  parallel_ranges(call.threads, x.type.shape.elements(), kBlock, [&](std::int64_t begin, std::int64_t end, int) {
    std::array<float, kBlock> z;
    std::array<float, kBlock> back;
    for (std::int64_t first = begin; first < end; first += kBlock) {
      const std::int64_t count = std::min(kBlock, end - first);
      const float* values = read_f32(x, first, count, z.data());
      for (std::int64_t index = 0; index < count; ++index) z[static_cast<std::size_t>(index)] = values[index] + before[first + index];
      narrow(rounded.type.dtype, z.data(), element_address(rounded, first), count);
      widen(rounded.type.dtype, element_address(rounded, first), back.data(), count);
      for (std::int64_t index = 0; index < count; ++index) {
        const auto at = static_cast<std::size_t>(index);
        error[first + index] = std::isfinite(back[at]) ? z[at] - back[at] : 0.0f;
      }
    }
  });
}

constexpr std::array kKernels{
    Kernel{.op = "running_mean", .name = "running_mean.columns", .refusal = refuse_other_floats, .run = run_running_mean},
    Kernel{.op = "round_with_error", .name = "round_with_error.blocks", .refusal = refuse_other_floats, .run = run_round_with_error},
};

}  // namespace

std::span<const Kernel> stateful_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu

// Attention over two sets of keys put together, and its gradient, a query at a time: formulas stand with the operator
// (ops/attention_merge.cpp). Weights and sums are f32 whatever the element types.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cpu {

namespace {

constexpr std::int64_t kLeastRows = 16;  // for a thread of its own
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Where rows of outputs (B, T, H*D) and of log-sums (B, H, T) lie.
struct Layout {
  explicit Layout(const Tensor& out, const Tensor& lse)
      : rows(out.type.shape.rows()), length(out.type.shape[1]), width(out.type.shape[2]), heads(lse.type.shape[1]), dim(width / heads) {}

  std::int64_t stat(std::int64_t row, std::int64_t head) const { return (row / length * heads + head) * length + row % length; }

  std::int64_t rows, length, width, heads, dim;
};

// What each of two sets of keys counts for.
struct Shares {
  float lse, a, b;

  Shares(float lse_a, float lse_b) {
    const float larger = std::max(lse_a, lse_b);
    lse = larger == kNothing ? kNothing : larger + std::log(std::exp(lse_a - larger) + std::exp(lse_b - larger));
    a = lse_a == kNothing ? 0.0f : std::exp(lse_a - lse);
    b = lse_b == kNothing ? 0.0f : std::exp(lse_b - lse);
  }
};

// Rows of a thread in f32, behind one another.
template <std::size_t kRows>
std::int64_t rows_workspace(const ops::KernelQuery& query, std::size_t out) {
  Workspace workspace;
  for (int thread = 0; thread < query.threads; ++thread) {
    for (std::size_t row = 0; row < kRows; ++row) workspace.take<float>(query.inputs[out].shape[2]);
  }
  return workspace.bytes();
}

template <std::size_t kRows>
std::array<float*, kRows> rows_of_thread(const Call& call, std::int64_t width, int thread) {
  std::array<float*, kRows> rows{};
  Workspace counted;
  for (std::size_t row = 0; row < kRows; ++row) counted.take<float>(width);
  Workspace workspace(call.workspace + thread * counted.bytes());
  for (float*& row : rows) row = workspace.take<float>(width);
  return rows;
}

std::int64_t merge_workspace(const ops::KernelQuery& query) { return rows_workspace<3>(query, 0); }

void run_merge(const Call& call) {
  const Layout layout(call.outputs[0], call.outputs[1]);
  const auto* lse_a = call.inputs[1].as<const float>();
  const auto* lse_b = call.inputs[3].as<const float>();
  auto* lse = call.outputs[1].as<float>();
  parallel_ranges(call.threads, layout.rows, kLeastRows, [&](std::int64_t begin, std::int64_t end, int thread) {
    const auto [buffer_a, buffer_b, buffer] = rows_of_thread<3>(call, layout.width, thread);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = row * layout.width;
      const float* a = read_f32(call.inputs[0], first, layout.width, buffer_a);
      const float* b = read_f32(call.inputs[2], first, layout.width, buffer_b);
      float* out = target_f32(call.outputs[0], first, buffer);
      for (std::int64_t head = 0; head < layout.heads; ++head) {
        const std::int64_t stat = layout.stat(row, head);
        const Shares shares(lse_a[stat], lse_b[stat]);
        lse[stat] = shares.lse;
        for (std::int64_t e = head * layout.dim; e < (head + 1) * layout.dim; ++e) out[e] = shares.a * a[e] + shares.b * b[e];
      }
      finish_f32(call.outputs[0], first, layout.width, out);
    }
  });
}

std::int64_t merge_grad_workspace(const ops::KernelQuery& query) { return rows_workspace<5>(query, 0); }

void run_merge_grad(const Call& call) {
  const std::size_t parts = std::get<ops::MergeAttentionGrad>(call.op).of_lse ? 2 : 1;
  const std::span<const Tensor> inputs = call.inputs.subspan(parts);
  const Layout layout(inputs[0], inputs[1]);
  const float* arrived = parts == 2 ? call.inputs[1].as<const float>() : nullptr;
  const auto* lse_a = inputs[1].as<const float>();
  const auto* lse_b = inputs[3].as<const float>();
  parallel_ranges(call.threads, layout.rows, kLeastRows, [&](std::int64_t begin, std::int64_t end, int thread) {
    const auto [buffer, buffer_a, buffer_b, buffer_da, buffer_db] = rows_of_thread<5>(call, layout.width, thread);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = row * layout.width;
      const float* dout = read_f32(call.inputs[0], first, layout.width, buffer);
      const float* a = read_f32(inputs[0], first, layout.width, buffer_a);
      const float* b = read_f32(inputs[2], first, layout.width, buffer_b);
      float* dout_a = target_f32(call.outputs[0], first, buffer_da);
      float* dout_b = target_f32(call.outputs[2], first, buffer_db);
      for (std::int64_t head = 0; head < layout.heads; ++head) {
        const std::int64_t stat = layout.stat(row, head);
        const Shares shares(lse_a[stat], lse_b[stat]);
        float apart = 0.0f;  // dout.(out_a - out_b)
        for (std::int64_t e = head * layout.dim; e < (head + 1) * layout.dim; ++e) {
          apart += dout[e] * (a[e] - b[e]);
          dout_a[e] = shares.a * dout[e];
          dout_b[e] = shares.b * dout[e];
        }
        const float dlse = arrived == nullptr ? 0.0f : arrived[stat];
        call.outputs[1].as<float>()[stat] = shares.a * (dlse + shares.b * apart);
        call.outputs[3].as<float>()[stat] = shares.b * (dlse - shares.a * apart);
      }
      finish_f32(call.outputs[0], first, layout.width, dout_a);
      finish_f32(call.outputs[2], first, layout.width, dout_b);
    }
  });
}

constexpr std::array kKernels{
    Kernel{.op = ops::MergeAttention::kName,
           .name = "merge_attention.rows",
           .refusal = refuse_other_floats,
           .workspace = merge_workspace,
           .run = run_merge},
    Kernel{.op = ops::MergeAttentionGrad::kName,
           .name = "merge_attention_grad.rows",
           .refusal = refuse_other_floats,
           .workspace = merge_grad_workspace,
           .run = run_merge_grad},
};

}  // namespace

std::span<const Kernel> merge_attention_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu

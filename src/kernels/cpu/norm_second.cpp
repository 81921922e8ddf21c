// The adjoints of norm_grad and qk_norm_grad: runs of numbers that are normalised together, one a row or one for each query and key head.
// Sums over rows are made as in norm.cpp, so their bits do not depend on the thread count.
#include <algorithm>
#include <array>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cpu {

namespace {

constexpr std::size_t kWeights = 2;  // of queries and of keys; a norm has one

// Both operators, seen alike. Operands: dy, x, weights, stats, [arrived at dx], [arrived at each dweight].
struct Form {
  std::int64_t run = 1;  // numbers that are normalised together
  std::size_t weights = 1;
  bool centred = false;
  bool arrived = false;
  std::array<bool, kWeights> arrived_weight{};
  const ops::Heads* heads = nullptr;  // of packed rows

  std::size_t stats() const { return 2 + weights; }
};

Form form_of(const ops::Op& op, ops::Types inputs) {
  if (const auto* norm = std::get_if<ops::NormGradGrad>(&op)) {
    return {.run = inputs[1].shape[-1],
            .centred = norm->kind == ops::NormKind::layer,
            .arrived = norm->input,
            .arrived_weight = {norm->weight, false}};
  }
  const auto& qk = std::get<ops::QkNormGradGrad>(op);
  return {.run = qk.heads.dim, .weights = 2, .arrived = qk.input, .arrived_weight = {qk.query, qk.key}, .heads = &qk.heads};
}

struct Scratch {
  Scratch(Workspace& workspace, const Form& form, const base::Shape& x, std::int64_t blocks, int threads)
      : width(x[-1]), stride(padded_row(form.run)) {
    for (std::size_t which = 0; which < form.weights; ++which) {
      weight[which] = workspace.take<float>(stride);
      arrived_weight[which] = workspace.take<float>(stride);
      partials[which] = workspace.take<float>(blocks * stride);
    }
    rows = workspace.take<float>(threads * kRows * padded_row(width));
  }

  static constexpr std::int64_t kRows = 5;
  float* row(int thread, int which) const { return rows + (thread * kRows + which) * padded_row(width); }

  std::int64_t width;
  std::int64_t stride;
  std::array<float*, kWeights> weight{};
  std::array<float*, kWeights> arrived_weight{};
  std::array<float*, kWeights> partials{};
  float* rows = nullptr;
};

std::int64_t second_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  const base::Shape& x = query.inputs[1].shape;
  Scratch(workspace, form_of(query.op, query.inputs), x, row_blocks(x.rows()).count, query.threads);
  return workspace.bytes();
}

// What all rows share: weights in f32, and what arrived at their gradients.
struct Shared {
  std::array<const float*, kWeights> weight{};
  std::array<const float*, kWeights> arrived_weight{};
  const Tensor* arrived = nullptr;
};

Shared shared_of(const Call& call, const Form& form, const Scratch& scratch) {
  Shared shared;
  std::size_t next = form.stats() + 1;
  if (form.arrived) shared.arrived = &call.inputs[next++];
  for (std::size_t which = 0; which < form.weights; ++which) {
    shared.weight[which] = read_f32(call.inputs[2 + which], 0, form.run, scratch.weight[which]);
    if (form.arrived_weight[which])
      shared.arrived_weight[which] = read_f32(call.inputs[next++], 0, form.run, scratch.arrived_weight[which]);
  }
  return shared;
}

void second_of_row(const Call& call, const Form& form, const Scratch& scratch, const Shared& shared, std::int64_t block, std::int64_t row,
                   int thread) {
  const std::int64_t first = row * scratch.width;
  const float* dy = read_f32(call.inputs[0], first, scratch.width, scratch.row(thread, 0));
  const float* x = read_f32(call.inputs[1], first, scratch.width, scratch.row(thread, 1));
  const float* arrived = shared.arrived == nullptr ? nullptr : read_f32(*shared.arrived, first, scratch.width, scratch.row(thread, 2));
  float* ddy = target_f32(call.outputs[0], first, scratch.row(thread, 3));
  float* dx = target_f32(call.outputs[1], first, scratch.row(thread, 4));
  const auto run = [&](std::int64_t offset, RowStats stats, std::size_t which) {
    normalise_row_second({.dy = dy + offset,
                          .x = x + offset,
                          .weight = shared.weight[which],
                          .arrived = arrived == nullptr ? nullptr : arrived + offset,
                          .arrived_weight = shared.arrived_weight[which],
                          .stats = stats,
                          .centred = form.centred,
                          .ddy = ddy + offset,
                          .dx = dx + offset,
                          .dweight = scratch.partials[which] + block * scratch.stride},
                         form.run);
  };
  const auto* stats = call.inputs[form.stats()].as<const float>();
  if (form.heads == nullptr) {
    run(0, {stats[2 * row], stats[2 * row + 1]}, 0);
  } else {
    const ops::Heads& heads = *form.heads;
    const float* of_row = stats + row * (heads.query + heads.kv);
    for (std::int64_t head = 0; head < heads.query; ++head) run(heads.query_offset(head), {0.0f, of_row[head]}, 0);
    for (std::int64_t head = 0; head < heads.kv; ++head) {
      run(heads.key_offset(head), {0.0f, of_row[heads.query + head]}, 1);
      // Gradients of values pass through, and values change nothing.
      const std::int64_t value = heads.value_offset(head);
      if (arrived != nullptr) std::copy_n(arrived + value, heads.dim, ddy + value);
      if (arrived == nullptr) std::fill_n(ddy + value, heads.dim, 0.0f);
      std::fill_n(dx + value, heads.dim, 0.0f);
    }
  }
  finish_f32(call.outputs[0], first, scratch.width, ddy);
  finish_f32(call.outputs[1], first, scratch.width, dx);
}

void run_second(const Call& call) {
  const base::Shape& shape = call.inputs[1].type.shape;
  const Form form = form_of(call.op, std::array{call.inputs[0].type, call.inputs[1].type});
  const RowBlocks blocks = row_blocks(shape.rows());
  Workspace workspace(call.workspace);
  const Scratch scratch(workspace, form, shape, blocks.count, call.threads);
  const Shared shared = shared_of(call, form, scratch);
  parallel_ranges(call.threads, blocks.count, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t block = begin; block < end; ++block) {
      for (std::size_t which = 0; which < form.weights; ++which)
        std::fill_n(scratch.partials[which] + block * scratch.stride, scratch.stride, 0.0f);
      for (std::int64_t row = blocks.first(block); row < blocks.end(block); ++row)
        second_of_row(call, form, scratch, shared, block, row, thread);
    }
  });
  for (std::size_t which = 0; which < form.weights; ++which)
    finish_row_sums(call.outputs[2 + which], nullptr, scratch.partials[which], scratch.stride, blocks.count, call.threads);
}

constexpr std::array kKernels{
    Kernel{.op = "norm_grad_grad",
           .name = "norm_grad_grad.simd",
           .refusal = refuse_other_floats,
           .workspace = second_workspace,
           .run = run_second},
    Kernel{.op = "qk_norm_grad_grad",
           .name = "qk_norm_grad_grad.simd",
           .refusal = refuse_other_floats,
           .workspace = second_workspace,
           .run = run_second},
};

}  // namespace

std::span<const Kernel> norm_second_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu

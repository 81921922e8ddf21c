// See qk_norm.h. A packed row is taken whole: heads are short, and the values among them only pass through.
#include "kernels/cpu/qk_norm.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cpu {

namespace {

struct QkScratch {
  // blocks: partial sums for the gradients of both weights; none in the forward pass.
  QkScratch(Workspace& workspace, const ops::Heads& heads, std::int64_t blocks, int threads)
      : dim(heads.dim),
        width(heads.packed_width()),
        stride(padded_row(dim)),
        weight_q(workspace.take<float>(dim)),
        weight_k(workspace.take<float>(dim)),
        partials(workspace.take<float>(blocks * 2 * stride)),
        rows(workspace.take<float>(threads * kRows * padded_row(width))) {}

  static constexpr std::int64_t kRows = 2;
  float* row(int thread, int which) const { return rows + (thread * kRows + which) * padded_row(width); }
  float* dweight_q(std::int64_t block) const { return partials + block * 2 * stride; }
  float* dweight_k(std::int64_t block) const { return dweight_q(block) + stride; }

  std::int64_t dim;
  std::int64_t width;
  std::int64_t stride;
  float* weight_q;
  float* weight_k;
  float* partials;
  float* rows;
};

// Calls body(offset in the row, index among stats, is_key) for every query head, then every key head.
template <typename Body>
void for_each_head(const ops::Heads& heads, const Body& body) {
  for (std::int64_t head = 0; head < heads.query; ++head) body(heads.query_offset(head), head, false);
  for (std::int64_t head = 0; head < heads.kv; ++head) body(heads.key_offset(head), heads.query + head, true);
}

void copy_values(const ops::Heads& heads, const float* src, float* dst) {
  if (src == dst) return;
  for (std::int64_t head = 0; head < heads.kv; ++head) {
    const std::int64_t offset = heads.value_offset(head);
    std::memcpy(dst + offset, src + offset, static_cast<std::size_t>(heads.dim) * sizeof(float));
  }
}

std::int64_t row_grain(std::int64_t width) { return std::max<std::int64_t>(1, 8192 / width); }

}  // namespace

std::int64_t qk_norm_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  QkScratch(workspace, std::get<ops::QkNorm>(query.op).heads, 0, query.threads);
  return workspace.bytes();
}

void run_qk_norm(const Call& call) {
  const auto& op = std::get<ops::QkNorm>(call.op);
  const Tensor& packed = call.inputs[0];
  const Tensor& y = call.outputs[0];
  Workspace workspace(call.workspace);
  const QkScratch scratch(workspace, op.heads, 0, call.threads);
  const float* weight_q = read_f32(call.inputs[1], 0, scratch.dim, scratch.weight_q);
  const float* weight_k = read_f32(call.inputs[2], 0, scratch.dim, scratch.weight_k);
  const std::int64_t stats_width = op.heads.query + op.heads.kv;
  parallel_ranges(call.threads, packed.type.shape.rows(), row_grain(scratch.width), [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = row * scratch.width;
      const float* src = read_f32(packed, first, scratch.width, scratch.row(thread, 0));
      float* dst = target_f32(y, first, scratch.row(thread, 0));
      float* stats = call.outputs[1].as<float>() + row * stats_width;
      for_each_head(op.heads, [&](std::int64_t offset, std::int64_t index, bool is_key) {
        const RowStats made = rms_stats(src + offset, scratch.dim, op.eps);
        stats[index] = made.inverse_deviation;
        normalise_row(src + offset, made, is_key ? weight_k : weight_q, nullptr, dst + offset, scratch.dim);
      });
      copy_values(op.heads, src, dst);
      finish_f32(y, first, scratch.width, dst);
    }
  });
}

std::int64_t qk_norm_grad_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  QkScratch(workspace, std::get<ops::QkNormGrad>(query.op).heads, row_blocks(query.inputs[0].shape.rows()).count, query.threads);
  return workspace.bytes();
}

void run_qk_norm_grad(const Call& call) {
  const auto& op = std::get<ops::QkNormGrad>(call.op);
  const Tensor& dx = call.outputs[0];
  const RowBlocks blocks = row_blocks(dx.type.shape.rows());
  Workspace workspace(call.workspace);
  const QkScratch scratch(workspace, op.heads, blocks.count, call.threads);
  const float* weight_q = read_f32(call.inputs[2], 0, scratch.dim, scratch.weight_q);
  const float* weight_k = read_f32(call.inputs[3], 0, scratch.dim, scratch.weight_k);
  const std::int64_t stats_width = op.heads.query + op.heads.kv;

  const auto grad_of_row = [&](std::int64_t block, std::int64_t row, int thread) {
    const std::int64_t first = row * scratch.width;
    const float* dy = read_f32(call.inputs[0], first, scratch.width, scratch.row(thread, 0));
    const float* x = read_f32(call.inputs[1], first, scratch.width, scratch.row(thread, 1));
    const float* stats = call.inputs[4].as<const float>() + row * stats_width;
    float* dst = target_f32(dx, first, scratch.row(thread, 0));
    for_each_head(op.heads, [&](std::int64_t offset, std::int64_t index, bool is_key) {
      normalise_row_grad({.dy = dy + offset,
                          .x = x + offset,
                          .weight = is_key ? weight_k : weight_q,
                          .dsum = nullptr,
                          .stats = {0.0f, stats[index]},
                          .centred = false,
                          .dx = dst + offset,
                          .dweight = is_key ? scratch.dweight_k(block) : scratch.dweight_q(block),
                          .dbias = nullptr},
                         scratch.dim);
    });
    copy_values(op.heads, dy, dst);
    finish_f32(dx, first, scratch.width, dst);
  };
  parallel_ranges(call.threads, blocks.count, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t block = begin; block < end; ++block) {
      std::fill_n(scratch.dweight_q(block), 2 * scratch.stride, 0.0f);
      for (std::int64_t row = blocks.first(block); row < blocks.end(block); ++row) grad_of_row(block, row, thread);
    }
  });
  finish_row_sums(call.outputs[1], op.accumulate ? &call.inputs[5] : nullptr, scratch.dweight_q(0), 2 * scratch.stride, blocks.count,
                  call.threads);
  finish_row_sums(call.outputs[2], op.accumulate ? &call.inputs[6] : nullptr, scratch.dweight_k(0), 2 * scratch.stride, blocks.count,
                  call.threads);
}

}  // namespace plimsoll::kernels::cpu

// Linear layers and their gradients, each one GEMM: packed, or oneDNN's for bf16 where the CPU has bf16 arithmetic, or
// straight from memory for a few rows.
// Column sums for bias gradients.
#include <algorithm>
#include <array>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/onednn_gemm.h"
#include "kernels/cpu/packed_gemm.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cpu {

namespace {

// y (rows, N) = x (rows, K) w^T (N, K)
PackedGemm linear_problem(const Call& call) {
  const auto& op = std::get<ops::Linear>(call.op);
  const base::Shape& x = call.inputs[0].type.shape;
  const base::Shape& w = call.inputs[1].type.shape;
  const bool activates = op.activation != ops::ActivationKind::none;
  const Tensor& c = call.outputs[activates ? 1 : 0];
  PackedGemm gemm{.m = x.rows(), .n = w[0], .k = w[1]};
  gemm.a = {.data = call.inputs[0].data, .dtype = call.inputs[0].type.dtype, .stride = w[1]};
  gemm.b = {.data = call.inputs[1].data, .dtype = call.inputs[1].type.dtype, .stride = w[1], .transposed = true};
  gemm.c = c.data;
  gemm.c_dtype = c.type.dtype;
  gemm.c_stride = w[0];
  if (op.bias) {
    gemm.bias = call.inputs[2].data;
    gemm.bias_dtype = call.inputs[2].type.dtype;
  }
  if (activates) {
    gemm.activation = op.activation;
    gemm.activated = call.outputs[0].data;
  }
  return gemm;
}

void run_linear(const Call& call) { packed_gemm(linear_problem(call), call.workspace, call.threads); }

GemmSize linear_size(const ops::KernelQuery& query) {
  const base::Shape& w = query.inputs[1].shape;
  return {.m = query.inputs[0].shape.rows(), .n = w[0], .k = w[1], .c_dtype = query.outputs[0].dtype};
}

std::int64_t linear_workspace(const ops::KernelQuery& query) { return packed_gemm_workspace(linear_size(query), query.threads); }

std::optional<std::string> refuse_many_rows(const ops::KernelQuery& query) {
  if (query.inputs[0].shape.rows() > kFewRows) return fmt::format("more than {} rows", kFewRows);
  return refuse_other_floats(query);
}

std::int64_t few_rows_bytes(const ops::KernelQuery& query) { return few_rows_workspace(linear_size(query)); }

void run_few_rows(const Call& call) { few_rows_gemm(linear_problem(call), call.workspace, call.threads); }

// The gradient before the activation, in place of that behind it.
void apply_slopes(const Call& call) {
  const ops::ActivationKind kind = std::get<ops::LinearGradInput>(call.op).activation;
  if (kind == ops::ActivationKind::none) return;
  const ops::Op slopes = ops::ActivationGrad{.kind = kind};
  const std::array operands{call.outputs[0], call.inputs[2]};
  kernel_named("activation_grad.simd").run({.op = slopes, .inputs = operands, .outputs = call.outputs, .threads = call.threads});
}

// dx (rows, K) = dy (rows, N) w (N, K)
void run_grad_input(const Call& call) {
  const base::Shape& w = call.inputs[1].type.shape;
  PackedGemm gemm{.m = call.inputs[0].type.shape.rows(), .n = w[1], .k = w[0]};
  gemm.a = {.data = call.inputs[0].data, .dtype = call.inputs[0].type.dtype, .stride = w[0]};
  gemm.b = {.data = call.inputs[1].data, .dtype = call.inputs[1].type.dtype, .stride = w[1]};
  gemm.c = call.outputs[0].data;
  gemm.c_dtype = call.outputs[0].type.dtype;
  gemm.c_stride = w[1];
  packed_gemm(gemm, call.workspace, call.threads);
  apply_slopes(call);
}

std::int64_t grad_input_workspace(const ops::KernelQuery& query) {
  const base::Shape& w = query.inputs[1].shape;
  return packed_gemm_workspace({.m = query.inputs[0].shape.rows(), .n = w[1], .k = w[0], .c_dtype = query.outputs[0].dtype}, query.threads);
}

// dw (N, K) = dy^T (rows, N) x (rows, K)
void run_grad_weight(const Call& call) {
  const base::Shape& dw = call.outputs[0].type.shape;
  PackedGemm gemm{.m = dw[0], .n = dw[1], .k = call.inputs[0].type.shape.rows()};
  gemm.a = {.data = call.inputs[0].data, .dtype = call.inputs[0].type.dtype, .stride = dw[0], .transposed = true};
  gemm.b = {.data = call.inputs[1].data, .dtype = call.inputs[1].type.dtype, .stride = dw[1]};
  gemm.c = call.outputs[0].data;
  gemm.c_dtype = call.outputs[0].type.dtype;
  gemm.c_stride = dw[1];
  gemm.accumulate = std::get<ops::LinearGradWeight>(call.op).accumulate;
  packed_gemm(gemm, call.workspace, call.threads);
}

std::int64_t grad_weight_workspace(const ops::KernelQuery& query) {
  const base::Shape& dw = query.outputs[0].shape;
  return packed_gemm_workspace({.m = dw[0], .n = dw[1], .k = query.inputs[0].shape.rows(), .c_dtype = query.outputs[0].dtype},
                               query.threads);
}

// ---- the same by oneDNN

// The operator's product as oneDNN wants it, from the types of the operands.
OnednnGemm gemm_of(const ops::KernelQuery& query) {
  const ops::Product product = ops::definition_of(query.op).products(query.op, query.inputs, query.outputs).front();
  return {.m = product.rows,
          .n = product.columns,
          .k = product.depth,
          .a_transposed = product.left_transposed,
          .b_transposed = product.right_transposed,
          .c_dtype = query.outputs[0].dtype};
}

OnednnMatmul linear_matmul(const ops::KernelQuery& query) {
  OnednnGemm gemm = gemm_of(query);
  if (std::get<ops::Linear>(query.op).bias) gemm.bias = query.inputs[2].dtype;
  return {gemm, query.threads};
}

OnednnMatmul grad_input_matmul(const ops::KernelQuery& query) { return {gemm_of(query), query.threads}; }

OnednnMatmul grad_weight_matmul(const ops::KernelQuery& query) {
  OnednnGemm gemm = gemm_of(query);
  gemm.accumulate = std::get<ops::LinearGradWeight>(query.op).accumulate;
  return {gemm, query.threads};
}

using MakeMatmul = OnednnMatmul (*)(const ops::KernelQuery& query);

template <MakeMatmul kMake>
std::optional<std::string> refuse_onednn(const ops::KernelQuery& query) {
  const auto is_bf16 = [](const base::TensorType& type) { return type.dtype == base::DType::bf16; };
  if (!is_bf16(query.inputs[0]) || !is_bf16(query.inputs[1])) return "the operands are not both bf16";
  for (const base::TensorType& type : {query.inputs.back(), query.outputs[0]}) {
    if (!is_bf16(type) && type.dtype != base::DType::f32) return fmt::format("{} is neither bf16 nor f32", base::name_of(type.dtype));
  }
  return kMake(query).refusal();
}

template <MakeMatmul kMake>
std::int64_t onednn_workspace(const ops::KernelQuery& query) {
  return kMake(query).workspace();
}

template <MakeMatmul kMake>
Prepared prepare_onednn(const ops::KernelQuery& query) {
  auto matmul = std::make_shared<OnednnMatmul>(kMake(query));
  matmul->prepare();
  return matmul;
}

void run_matmul(const Call& call, const Tensor* bias, const Tensor& c) {
  const auto& matmul = *static_cast<const OnednnMatmul*>(call.prepared);
  matmul.run(call.inputs[0].data, call.inputs[1].data, bias != nullptr ? bias->data : nullptr, c.data, call.workspace);
}

void run_onednn_linear(const Call& call) {
  const auto& linear = std::get<ops::Linear>(call.op);
  const bool activates = linear.activation != ops::ActivationKind::none;
  const Tensor& c = call.outputs[activates ? 1 : 0];
  run_matmul(call, linear.bias ? &call.inputs[2] : nullptr, c);
  if (!activates) return;
  const ops::Op activation = ops::Activation{.kind = linear.activation};
  const Kernel& kernel = kernel_named("activation.simd");
  kernel.run({.op = activation, .inputs = {&c, 1}, .outputs = call.outputs.first(1), .threads = call.threads});
}

void run_onednn_grad_input(const Call& call) {
  run_matmul(call, nullptr, call.outputs[0]);
  apply_slopes(call);
}

void run_onednn_grad_weight(const Call& call) { run_matmul(call, nullptr, call.outputs[0]); }

// ---- bias gradient

// Blocks of rows are summed in row order, blocks in block order: the same bits for any number of threads.
struct BiasGradScratch {
  BiasGradScratch(Workspace& workspace, const RowBlocks& blocks, std::int64_t width, int threads)
      : stride(padded_row(width)), partials(workspace.take<float>(blocks.count * stride)), rows(workspace.take<float>(threads * stride)) {}

  std::int64_t stride;
  float* partials;
  float* rows;
};

std::int64_t bias_grad_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  const base::Shape& dy = query.inputs[0].shape;
  const BiasGradScratch scratch(workspace, row_blocks(dy.rows()), dy[-1], query.threads);
  return workspace.bytes();
}

void run_bias_grad(const Call& call) {
  const Tensor& dy = call.inputs[0];
  const std::int64_t width = dy.type.shape[-1];
  const RowBlocks blocks = row_blocks(dy.type.shape.rows());
  Workspace workspace(call.workspace);
  const BiasGradScratch scratch(workspace, blocks, width, call.threads);
  parallel_ranges(call.threads, blocks.count, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t block = begin; block < end; ++block) {
      float* sums = scratch.partials + block * scratch.stride;
      if (dy.type.dtype == base::DType::f32) {
        const std::int64_t rows = blocks.end(block) - blocks.first(block);
        sum_parts(dy.as<const float>() + blocks.first(block) * width, rows, width, nullptr, sums, width);
        continue;
      }
      std::fill_n(sums, width, 0.0f);
      for (std::int64_t row = blocks.first(block); row < blocks.end(block); ++row) {
        const float* values = read_f32(dy, row * width, width, scratch.rows + thread * scratch.stride);
        sum_parts(values, 1, width, sums, sums, width);
      }
    }
  });
  const bool accumulate = std::get<ops::BiasGrad>(call.op).accumulate;
  finish_row_sums(call.outputs[0], accumulate ? &call.inputs[1] : nullptr, scratch.partials, scratch.stride, blocks.count, call.threads);
}

template <MakeMatmul kMake>
constexpr Kernel by_onednn(std::string_view op, std::string_view name, void (*run)(const Call& call)) {
  return {.op = op,
          .name = name,
          .refusal = refuse_onednn<kMake>,
          .workspace = onednn_workspace<kMake>,
          .prepare = prepare_onednn<kMake>,
          .run = run};
}

constexpr std::array kKernels{
    Kernel{.op = "linear", .name = "linear.few_rows", .refusal = refuse_many_rows, .workspace = few_rows_bytes, .run = run_few_rows},
    by_onednn<linear_matmul>("linear", "linear.onednn", run_onednn_linear),
    by_onednn<grad_input_matmul>("linear_grad_input", "linear_grad_input.onednn", run_onednn_grad_input),
    by_onednn<grad_weight_matmul>("linear_grad_weight", "linear_grad_weight.onednn", run_onednn_grad_weight),
    Kernel{.op = "linear", .name = "linear.packed", .refusal = refuse_other_floats, .workspace = linear_workspace, .run = run_linear},
    Kernel{.op = "linear_grad_input",
           .name = "linear_grad_input.packed",
           .refusal = refuse_other_floats,
           .workspace = grad_input_workspace,
           .run = run_grad_input},
    Kernel{.op = "linear_grad_weight",
           .name = "linear_grad_weight.packed",
           .refusal = refuse_other_floats,
           .workspace = grad_weight_workspace,
           .run = run_grad_weight},
    Kernel{.op = "bias_grad",
           .name = "bias_grad.simd",
           .refusal = refuse_other_floats,
           .workspace = bias_grad_workspace,
           .run = run_bias_grad},
};

}  // namespace

std::span<const Kernel> linear_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu

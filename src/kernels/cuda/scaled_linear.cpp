// Products of 8-bit operands by cuBLASLt: linear layers and, on transposes, their gradients. Bias is added while the product is written.
#include "kernels/cuda/lt_gemm.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/workspace.h"

namespace plimsoll::kernels::cuda {

namespace {

using base::DType;

LtProblem problem_of(const ops::KernelQuery& query) {
  const auto& op = std::get<ops::ScaledLinear>(query.op);
  const base::Shape& a = query.inputs[0].shape;
  const base::Shape& b = query.inputs[1].shape;
  return {.m = a.rows(),
          .n = b[0],
          .k = b[1],
          .b_transposed = true,
          .a_stride = b[1],
          .b_stride = b[1],
          .c_stride = b[0],
          .operands = query.inputs[0].dtype,
          .second = query.inputs[1].dtype,
          .result = op.dtype,
          .accumulate = op.accumulate,
          .epilogue = op.bias ? LtProblem::Epilogue::bias : LtProblem::Epilogue::none};
}

// Such a product takes a bf16 bias; models keep it in f32.
bool casts_bias(const ops::KernelQuery& query) {
  return std::get<ops::ScaledLinear>(query.op).bias && query.inputs[4].dtype != DType::bf16;
}

struct Scratch {
  std::byte* bias;  // cast
  std::byte* product;

  Scratch(const ops::KernelQuery& query, Workspace& pieces)
      : bias(pieces.take<std::byte>(casts_bias(query) ? query.inputs[4].shape.elements() * 2 : 0)),
        product(pieces.take<std::byte>(problem_of(query).workspace())) {}
};

struct PreparedProduct {
  LtGemm gemm;
  const Kernel* cast = nullptr;     // of the bias; null: it fits
  std::int64_t product_offset = 0;  // in the workspace, behind the cast bias
};

std::optional<std::string> refuse(const ops::KernelQuery& query) {
  const auto& op = std::get<ops::ScaledLinear>(query.op);
  if (op.dtype != DType::bf16 && op.dtype != DType::f32) return "the result is neither bf16 nor f32";
  if (op.bias && op.dtype != DType::bf16) return "a bias is added to bf16 results only";
  const base::Shape& a = query.inputs[0].shape;
  const base::Shape& b = query.inputs[1].shape;
  if (a.rows() % 16 != 0 || b[0] % 16 != 0 || b[1] % 16 != 0) return "16 does not divide all extents";
  if (query.inputs[0].dtype == DType::f8e5m2 && query.inputs[1].dtype == DType::f8e5m2) return "both operands are f8e5m2";
  return std::nullopt;
}

std::int64_t workspace(const ops::KernelQuery& query) {
  Workspace pieces;
  Scratch(query, pieces);
  return pieces.bytes();
}

template <LtChoice kChoice>
Prepared prepare(const ops::KernelQuery& query) {
  const LtProblem problem = problem_of(query);
  auto prepared = std::make_shared<PreparedProduct>(PreparedProduct{LtGemm(problem, kChoice)});
  prepared->product_offset = workspace(query) - (problem.workspace() + 255) / 256 * 256;
  if (!casts_bias(query)) return prepared;
  const base::TensorType from = query.inputs[4];
  const base::TensorType to{DType::bf16, from.shape};
  prepared->cast = &kernel_named(choose({ops::Cast{.dtype = to.dtype}, {&from, 1}, {&to, 1}, query.threads, query.deterministic}).name);
  return prepared;
}

void launch(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::ScaledLinear>(call.op);
  const auto& prepared = *static_cast<const PreparedProduct*>(call.prepared);
  LtOperands operands{.a = call.inputs[0].data,
                      .b = call.inputs[1].data,
                      .present = op.accumulate ? call.inputs.back().data : nullptr,
                      .c = call.outputs[0].data,
                      .bias = op.bias ? call.inputs[4].data : nullptr,
                      .scale_a = call.inputs[2].as<const float>(),
                      .scale_b = call.inputs[3].as<const float>(),
                      .workspace = call.workspace + prepared.product_offset};
  if (prepared.cast != nullptr) {
    const Tensor to{call.workspace, {DType::bf16, call.inputs[4].type.shape}};
    const ops::Op cast = ops::Cast{.dtype = to.type.dtype};
    prepared.cast->launch({cast, call.inputs.subspan(4, 1), {&to, 1}, nullptr, nullptr}, stream);
    operands.bias = to.data;
  }
  prepared.gemm.launch(operands, stream);
}

std::optional<std::string> refuse_fastest(const ops::KernelQuery& query) {
  if (query.deterministic) return "which algorithm is fastest is measured, and may be another in the next run";
  return refuse(query);
}

constexpr Kernel kKernels[] = {
    {.op = "scaled_linear",
     .name = "scaled_linear.cublaslt-fastest",
     .refusal = refuse_fastest,
     .workspace = workspace,
     .prepare = prepare<LtChoice::fastest>,
     .launch = launch},
    {.op = "scaled_linear",
     .name = "scaled_linear.cublaslt",
     .refusal = refuse,
     .workspace = workspace,
     .prepare = prepare<LtChoice::first>,
     .launch = launch},
};

}  // namespace

std::span<const Kernel> scaled_linear_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

// Linear layers and their gradients by cuBLASLt. Bias and GELU are done while the product is written; other activations
// take a second pass, by the kernel that the activation operator would choose.
#include <array>

#include "base/error.h"
#include "kernels/cuda/lt_gemm.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/workspace.h"

namespace plimsoll::kernels::cuda {

namespace {

using ops::ActivationKind;

ActivationKind activation_of(const ops::Op& op) {
  if (const auto* linear = std::get_if<ops::Linear>(&op)) return linear->activation;
  const auto* gradient = std::get_if<ops::LinearGradInput>(&op);
  return gradient != nullptr ? gradient->activation : ActivationKind::none;
}

// cuBLASLt keeps what goes into the GELU in rows of 16 bytes, and knows its slopes for 16-bit elements only.
bool gelu_fits(const ops::KernelQuery& query) {
  const base::TensorType& made = query.outputs[0];
  if (activation_of(query.op) != ActivationKind::gelu_tanh || made.shape[-1] % 8 != 0) return false;
  return std::holds_alternative<ops::Linear>(query.op) || base::size_of(made.dtype) == 2;
}

LtProblem problem_of(const ops::KernelQuery& query) {
  const base::Shape& first = query.inputs[0].shape;
  const base::Shape& second = query.inputs[1].shape;
  LtProblem problem{.operands = query.inputs[0].dtype, .result = query.outputs[0].dtype};
  if (const auto* op = std::get_if<ops::Linear>(&query.op)) {
    // y (rows, N) = x (rows, K) w (N, K) transposed
    const std::int64_t n = second[0];
    const std::int64_t k = second[1];
    problem.m = first.rows(), problem.n = n, problem.k = k;
    problem.b_transposed = true;
    problem.a_stride = k, problem.b_stride = k, problem.c_stride = n;
    if (gelu_fits(query)) {
      problem.epilogue = op->bias ? LtProblem::Epilogue::gelu_bias : LtProblem::Epilogue::gelu;
    } else if (op->bias) {
      problem.epilogue = LtProblem::Epilogue::bias;
    }
  } else if (std::holds_alternative<ops::LinearGradInput>(query.op)) {
    // dx (rows, K) = dy (rows, N) w (N, K)
    problem.m = first.rows(), problem.n = second[1], problem.k = second[0];
    problem.a_stride = second[0], problem.b_stride = second[1], problem.c_stride = second[1];
    if (gelu_fits(query)) problem.epilogue = LtProblem::Epilogue::dgelu;
  } else {
    // dw (N, K) = dy (rows, N) transposed, x (rows, K)
    problem.m = first[-1], problem.n = second[-1], problem.k = first.rows();
    problem.a_transposed = true;
    problem.a_stride = first[-1], problem.b_stride = second[-1], problem.c_stride = second[-1];
    problem.accumulate = std::get<ops::LinearGradWeight>(query.op).accumulate;
  }
  return problem;
}

// A product of 16-bit operands takes a 16-bit bias; models keep it in f32.
bool casts_bias(const ops::KernelQuery& query) {
  const auto* op = std::get_if<ops::Linear>(&query.op);
  return op != nullptr && op->bias && query.inputs[2].dtype != query.inputs[0].dtype;
}

struct Scratch {
  std::byte* bias;  // cast
  std::byte* product;

  Scratch(const ops::KernelQuery& query, Workspace& pieces)
      : bias(pieces.take<std::byte>(casts_bias(query) ? query.inputs[2].shape.elements() * base::size_of(query.inputs[0].dtype) : 0)),
        product(pieces.take<std::byte>(problem_of(query).workspace())) {}
};

struct PreparedLinear {
  LtGemm gemm;
  const Kernel* activation = nullptr;  // null: none, or done by the product
  const Kernel* cast = nullptr;        // of the bias; null: it fits
  std::int64_t product_offset = 0;     // in the workspace, behind the cast bias
};

bool is_gemm_type(base::DType dtype) { return dtype == base::DType::f32 || dtype == base::DType::bf16 || dtype == base::DType::f16; }

std::optional<std::string> refuse(const ops::KernelQuery& query) {
  const base::DType dtype = query.inputs[0].dtype;
  if (!is_gemm_type(dtype) || query.inputs[1].dtype != dtype) return "operands are not all f32, bf16 or f16";
  if (query.outputs[0].dtype != dtype && query.outputs[0].dtype != base::DType::f32)
    return "the result is neither f32 nor of the operands' type";
  return std::nullopt;
}

// The second pass over what the product cannot do: an activation of its result, or the slopes of one that came before.
ops::Op second_pass(const ops::Op& op) {
  if (std::holds_alternative<ops::Linear>(op)) return ops::Activation{.kind = activation_of(op)};
  return ops::ActivationGrad{.kind = activation_of(op)};
}

const Kernel* second_kernel(const ops::KernelQuery& query) {
  const ops::Op op = second_pass(query.op);
  const bool forward = std::holds_alternative<ops::Linear>(query.op);
  const std::array slopes{query.outputs[0], query.inputs.back()};
  const ops::Types inputs = forward ? query.outputs.subspan(1, 1) : ops::Types(slopes);
  return &kernel_named(choose({op, inputs, query.outputs.subspan(0, 1), query.threads, query.deterministic}).name);
}

std::int64_t workspace(const ops::KernelQuery& query) {
  Workspace pieces;
  Scratch(query, pieces);
  return pieces.bytes();
}

const Kernel* cast_kernel(const ops::KernelQuery& query) {
  const base::TensorType from = query.inputs[2];
  const base::TensorType to{query.inputs[0].dtype, from.shape};
  return &kernel_named(choose({ops::Cast{.dtype = to.dtype}, {&from, 1}, {&to, 1}, query.threads, query.deterministic}).name);
}

template <LtChoice kChoice>
Prepared prepare(const ops::KernelQuery& query) {
  const LtProblem problem = problem_of(query);
  auto prepared = std::make_shared<PreparedLinear>(PreparedLinear{LtGemm(problem, kChoice)});
  if (activation_of(query.op) != ActivationKind::none && !gelu_fits(query)) prepared->activation = second_kernel(query);
  prepared->product_offset = workspace(query) - (problem.workspace() + 255) / 256 * 256;
  if (casts_bias(query)) prepared->cast = cast_kernel(query);
  return prepared;
}

const void* cast_bias(const Kernel& kernel, const Call& call, cudaStream_t stream) {
  const Tensor to{call.workspace, {call.inputs[0].type.dtype, call.inputs[2].type.shape}};
  const ops::Op op = ops::Cast{.dtype = to.type.dtype};
  kernel.launch({op, call.inputs.subspan(2, 1), {&to, 1}, nullptr, nullptr}, stream);
  return to.data;
}

void launch(const Call& call, cudaStream_t stream) {
  const auto& prepared = *static_cast<const PreparedLinear*>(call.prepared);
  LtOperands operands{
      .a = call.inputs[0].data, .b = call.inputs[1].data, .c = call.outputs[0].data, .workspace = call.workspace + prepared.product_offset};
  if (const auto* op = std::get_if<ops::Linear>(&call.op)) {
    operands.bias = op->bias ? call.inputs[2].data : nullptr;
    if (prepared.cast != nullptr) operands.bias = cast_bias(*prepared.cast, call, stream);
    operands.pre = call.outputs.size() > 1 ? call.outputs[1].data : nullptr;
    if (prepared.activation != nullptr) operands.c = operands.pre;
  } else if (std::holds_alternative<ops::LinearGradInput>(call.op)) {
    operands.pre = call.inputs.size() > 2 ? call.inputs[2].data : nullptr;
  } else if (const auto* gradient = std::get_if<ops::LinearGradWeight>(&call.op); gradient != nullptr && gradient->accumulate) {
    operands.present = call.inputs[2].data;
  }
  prepared.gemm.launch(operands, stream);
  if (prepared.activation == nullptr) return;
  const ops::Op op = second_pass(call.op);
  const bool forward = std::holds_alternative<ops::Linear>(call.op);
  const std::array slopes{call.outputs[0], call.inputs.back()};
  const std::span<const Tensor> inputs = forward ? call.outputs.subspan(1, 1) : std::span<const Tensor>(slopes);
  prepared.activation->launch({op, inputs, call.outputs.subspan(0, 1), nullptr, nullptr}, stream);
}

std::optional<std::string> refuse_fastest(const ops::KernelQuery& query) {
  if (query.deterministic) return "which algorithm is fastest is measured, and may be another in the next run";
  return refuse(query);
}

constexpr Kernel by_fastest(std::string_view op, std::string_view name) {
  return {
      .op = op, .name = name, .refusal = refuse_fastest, .workspace = workspace, .prepare = prepare<LtChoice::fastest>, .launch = launch};
}

constexpr Kernel by_cublaslt(std::string_view op, std::string_view name) {
  return {.op = op, .name = name, .refusal = refuse, .workspace = workspace, .prepare = prepare<LtChoice::first>, .launch = launch};
}

constexpr Kernel kKernels[] = {
    by_fastest("linear", "linear.cublaslt-fastest"),
    by_fastest("linear_grad_input", "linear_grad_input.cublaslt-fastest"),
    by_fastest("linear_grad_weight", "linear_grad_weight.cublaslt-fastest"),
    by_cublaslt("linear", "linear.cublaslt"),
    by_cublaslt("linear_grad_input", "linear_grad_input.cublaslt"),
    by_cublaslt("linear_grad_weight", "linear_grad_weight.cublaslt"),
};

}  // namespace

std::span<const Kernel> linear_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

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

// What one of a layer's three operators does beside its product.
struct Extras {
  ActivationKind activation = ActivationKind::none;  // of the result
  bool slopes = false;                               // times the activation's slopes instead, at the last operand
  bool bias = false;
  bool accumulate = false;
};

Extras extras_of(const ops::Linear& op) { return {.activation = op.activation, .bias = op.bias}; }
Extras extras_of(const ops::LinearGradInput& op) { return {.activation = op.activation, .slopes = true}; }
Extras extras_of(const ops::LinearGradWeight& op) { return {.accumulate = op.accumulate}; }

// cuBLASLt keeps what goes into the GELU in rows of 16 bytes, and knows its slopes for 16-bit elements only.
bool gelu_fits(const Extras& extras, const ops::KernelQuery& query) {
  const base::TensorType& made = query.outputs[0];
  if (extras.activation != ActivationKind::gelu_tanh || made.shape[-1] % 8 != 0) return false;
  return !extras.slopes || base::size_of(made.dtype) == 2;
}

LtProblem::Epilogue epilogue_of(const Extras& extras, const ops::KernelQuery& query) {
  if (!gelu_fits(extras, query)) return extras.bias ? LtProblem::Epilogue::bias : LtProblem::Epilogue::none;
  if (extras.slopes) return LtProblem::Epilogue::dgelu;
  return extras.bias ? LtProblem::Epilogue::gelu_bias : LtProblem::Epilogue::gelu;
}

LtProblem problem_of(const Extras& extras, const ops::KernelQuery& query) {
  const ops::Product product = ops::definition_of(query.op).products(query.op, query.inputs, query.outputs).front();
  LtProblem problem{.operands = query.inputs[0].dtype, .result = query.outputs[0].dtype};
  problem.m = product.rows, problem.n = product.columns, problem.k = product.depth;
  problem.a_transposed = product.left_transposed, problem.b_transposed = product.right_transposed;
  problem.a_stride = query.inputs[0].shape[-1], problem.b_stride = query.inputs[1].shape[-1], problem.c_stride = product.columns;
  problem.accumulate = extras.accumulate;
  problem.epilogue = epilogue_of(extras, query);
  return problem;
}

// A product of 16-bit operands takes a 16-bit bias; models keep it in f32.
bool casts_bias(const Extras& extras, const ops::KernelQuery& query) {
  return extras.bias && query.inputs[2].dtype != query.inputs[0].dtype;
}

struct Scratch {
  std::byte* bias;  // cast
  std::byte* product;

  Scratch(const Extras& extras, const ops::KernelQuery& query, Workspace& pieces)
      : bias(pieces.take<std::byte>(casts_bias(extras, query) ? query.inputs[2].shape.elements() * base::size_of(query.inputs[0].dtype)
                                                              : 0)),
        product(pieces.take<std::byte>(problem_of(extras, query).workspace())) {}
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
ops::Op second_pass(const Extras& extras) {
  if (extras.slopes) return ops::ActivationGrad{.kind = extras.activation};
  return ops::Activation{.kind = extras.activation};
}

const Kernel* second_kernel(const Extras& extras, const ops::KernelQuery& query) {
  const ops::Op op = second_pass(extras);
  const std::array slopes{query.outputs[0], query.inputs.back()};
  const ops::Types inputs = extras.slopes ? ops::Types(slopes) : query.outputs.subspan(1, 1);
  return &kernel_named(choose({op, inputs, query.outputs.subspan(0, 1), query.threads, query.deterministic}).name);
}

template <typename Attributes>
std::int64_t workspace(const ops::KernelQuery& query) {
  Workspace pieces;
  Scratch(extras_of(std::get<Attributes>(query.op)), query, pieces);
  return pieces.bytes();
}

const Kernel* cast_kernel(const ops::KernelQuery& query) {
  const base::TensorType from = query.inputs[2];
  const base::TensorType to{query.inputs[0].dtype, from.shape};
  return &kernel_named(choose({ops::Cast{.dtype = to.dtype}, {&from, 1}, {&to, 1}, query.threads, query.deterministic}).name);
}

template <typename Attributes, LtChoice kChoice>
Prepared prepare(const ops::KernelQuery& query) {
  const Extras extras = extras_of(std::get<Attributes>(query.op));
  const LtProblem problem = problem_of(extras, query);
  auto prepared = std::make_shared<PreparedLinear>(PreparedLinear{LtGemm(problem, kChoice)});
  if (extras.activation != ActivationKind::none && !gelu_fits(extras, query)) prepared->activation = second_kernel(extras, query);
  prepared->product_offset = workspace<Attributes>(query) - (problem.workspace() + 255) / 256 * 256;
  if (casts_bias(extras, query)) prepared->cast = cast_kernel(query);
  return prepared;
}

const void* cast_bias(const Kernel& kernel, const Call& call, cudaStream_t stream) {
  const Tensor to{call.workspace, {call.inputs[0].type.dtype, call.inputs[2].type.shape}};
  const ops::Op op = ops::Cast{.dtype = to.type.dtype};
  kernel.launch({op, call.inputs.subspan(2, 1), {&to, 1}, nullptr, nullptr}, stream);
  return to.data;
}

template <typename Attributes>
void launch(const Call& call, cudaStream_t stream) {
  const Extras extras = extras_of(std::get<Attributes>(call.op));
  const auto& prepared = *static_cast<const PreparedLinear*>(call.prepared);
  LtOperands operands{
      .a = call.inputs[0].data, .b = call.inputs[1].data, .c = call.outputs[0].data, .workspace = call.workspace + prepared.product_offset};
  if (extras.bias) operands.bias = prepared.cast != nullptr ? cast_bias(*prepared.cast, call, stream) : call.inputs[2].data;
  if (extras.activation != ActivationKind::none) operands.pre = extras.slopes ? call.inputs[2].data : call.outputs[1].data;
  if (prepared.activation != nullptr && !extras.slopes) operands.c = operands.pre;
  if (extras.accumulate) operands.present = call.inputs[2].data;
  prepared.gemm.launch(operands, stream);
  if (prepared.activation == nullptr) return;
  const ops::Op op = second_pass(extras);
  const std::array slopes{call.outputs[0], call.inputs.back()};
  const std::span<const Tensor> inputs = extras.slopes ? std::span<const Tensor>(slopes) : call.outputs.subspan(1, 1);
  prepared.activation->launch({op, inputs, call.outputs.subspan(0, 1), nullptr, nullptr}, stream);
}

std::optional<std::string> refuse_fastest(const ops::KernelQuery& query) {
  if (query.deterministic) return "which algorithm is fastest is measured, and may be another in the next run";
  return refuse(query);
}

template <typename Attributes>
constexpr Kernel by_fastest(std::string_view op, std::string_view name) {
  return {.op = op,
          .name = name,
          .refusal = refuse_fastest,
          .workspace = workspace<Attributes>,
          .prepare = prepare<Attributes, LtChoice::fastest>,
          .launch = launch<Attributes>};
}

template <typename Attributes>
constexpr Kernel by_cublaslt(std::string_view op, std::string_view name) {
  return {.op = op,
          .name = name,
          .refusal = refuse,
          .workspace = workspace<Attributes>,
          .prepare = prepare<Attributes, LtChoice::first>,
          .launch = launch<Attributes>};
}

constexpr Kernel kKernels[] = {
    by_fastest<ops::Linear>("linear", "linear.cublaslt-fastest"),
    by_fastest<ops::LinearGradInput>("linear_grad_input", "linear_grad_input.cublaslt-fastest"),
    by_fastest<ops::LinearGradWeight>("linear_grad_weight", "linear_grad_weight.cublaslt-fastest"),
    by_cublaslt<ops::Linear>("linear", "linear.cublaslt"),
    by_cublaslt<ops::LinearGradInput>("linear_grad_input", "linear_grad_input.cublaslt"),
    by_cublaslt<ops::LinearGradWeight>("linear_grad_weight", "linear_grad_weight.cublaslt"),
};

}  // namespace

std::span<const Kernel> linear_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

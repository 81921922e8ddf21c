// Matrix products for every shape and element type: the last choice, and what small or odd cases fall back to. One
// thread makes one element of the result, so the order of every sum is fixed.
#include "kernels/cuda/activation.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/table.h"

namespace plimsoll::kernels::cuda {

namespace {

using ops::ActivationKind;

// c (m, n) = sum over k of a[i * a_row + k * a_step] * b[j * b_row + k * b_step].
struct Product {
  std::int64_t m, n, k;
  std::int64_t a_row, a_step;
  std::int64_t b_row, b_step;
};

constexpr int kBlock = 16;

__device__ float activated(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::gelu_tanh: return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case ActivationKind::gelu_erf: return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
    case ActivationKind::relu: return x > 0.0f ? x : 0.0f;
    case ActivationKind::silu: return x / (1.0f + expf(-x));
    case ActivationKind::none: break;
  }
  return x;
}

__device__ float slope_of(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::gelu_tanh: return activation_slope<ActivationKind::gelu_tanh>(x);
    case ActivationKind::gelu_erf: return activation_slope<ActivationKind::gelu_erf>(x);
    case ActivationKind::relu: return activation_slope<ActivationKind::relu>(x);
    case ActivationKind::silu: return activation_slope<ActivationKind::silu>(x);
    case ActivationKind::none: break;
  }
  return 1.0f;
}

// `before`: what an activation was applied to, whose slopes the result is multiplied by.
template <typename T, typename Out>
__global__ void product(Product p, const T* a, const T* b, const void* bias, bool f32_bias, const Out* present, const Out* before,
                        ActivationKind activation, Out* c, Out* pre) {
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + threadIdx.y;
  if (i >= p.m || j >= p.n) return;
  float sum = 0.0f;
  for (std::int64_t k = 0; k < p.k; ++k) sum = fmaf(to_f32(a[i * p.a_row + k * p.a_step]), to_f32(b[j * p.b_row + k * p.b_step]), sum);
  if (bias != nullptr) sum += f32_bias ? static_cast<const float*>(bias)[j] : to_f32(static_cast<const T*>(bias)[j]);
  if (before != nullptr) {
    c[i * p.n + j] = from_f32<Out>(sum * slope_of(activation, to_f32(before[i * p.n + j])));
    return;
  }
  if (present != nullptr) sum += to_f32(present[i * p.n + j]);
  if (pre != nullptr) pre[i * p.n + j] = from_f32<Out>(sum);
  c[i * p.n + j] = from_f32<Out>(activated(activation, sum));
}

template <typename T, typename Out>
void launch_product(const Product& p, const Call& call, const void* bias, const void* present, ActivationKind activation,
                    cudaStream_t stream, const void* before = nullptr) {
  const dim3 grid(blocks_for(p.n, kBlock), blocks_for(p.m, kBlock));
  Out* pre = call.outputs.size() > 1 ? call.outputs[1].as<Out>() : nullptr;
  product<T, Out><<<grid, dim3(kBlock, kBlock), 0, stream>>>(
      p, call.inputs[0].as<T>(), call.inputs[1].as<T>(), bias, bias != nullptr && call.inputs[2].type.dtype == base::DType::f32,
      static_cast<const Out*>(present), static_cast<const Out*>(before), activation, call.outputs[0].as<Out>(), pre);
  check_launch("plain product");
}

void linear(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::Linear>(call.op);
  const std::int64_t k = call.inputs[1].type.shape[1];
  const Product p{call.inputs[0].type.shape.rows(), call.inputs[1].type.shape[0], k, k, 1, k, 1};
  with_element(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_product<T, T>(p, call, op.bias ? call.inputs[2].data : nullptr, nullptr, op.activation, stream);
  });
}

void linear_grad_input(const Call& call, cudaStream_t stream) {
  const ActivationKind activation = std::get<ops::LinearGradInput>(call.op).activation;
  const std::int64_t n = call.inputs[1].type.shape[0];
  const std::int64_t k = call.inputs[1].type.shape[1];
  const Product p{call.inputs[0].type.shape.rows(), k, n, n, 1, 1, k};
  with_element(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_product<T, T>(p, call, nullptr, nullptr, activation, stream, activation != ActivationKind::none ? call.inputs[2].data : nullptr);
  });
}

void linear_grad_weight(const Call& call, cudaStream_t stream) {
  const std::int64_t rows = call.inputs[0].type.shape.rows();
  const std::int64_t n = call.inputs[0].type.shape[-1];
  const std::int64_t k = call.inputs[1].type.shape[-1];
  const Product p{n, k, rows, 1, n, 1, k};
  const void* present = std::get<ops::LinearGradWeight>(call.op).accumulate ? call.inputs[2].data : nullptr;
  with_element(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (call.outputs[0].type.dtype == base::DType::f32) {
      launch_product<T, float>(p, call, nullptr, present, ActivationKind::none, stream);
    } else {
      launch_product<T, T>(p, call, nullptr, present, ActivationKind::none, stream);
    }
  });
}

std::optional<std::string> refuse(const ops::KernelQuery& query) {
  const base::DType dtype = query.inputs[0].dtype;
  if (!is_element(dtype) || query.inputs[1].dtype != dtype) return "operands are not all f32, bf16 or f16";
  if (query.outputs[0].dtype != dtype && query.outputs[0].dtype != base::DType::f32)
    return "the result is neither f32 nor of the operands' type";
  return std::nullopt;
}

constexpr Kernel kKernels[] = {
    {.op = "linear", .name = "linear.plain", .refusal = refuse, .launch = linear},
    {.op = "linear_grad_input", .name = "linear_grad_input.plain", .refusal = refuse, .launch = linear_grad_input},
    {.op = "linear_grad_weight", .name = "linear_grad_weight.plain", .refusal = refuse, .launch = linear_grad_weight},
};

}  // namespace

std::span<const Kernel> plain_linear_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

// Attention over two sets of keys put together, and its gradient, by one warp for each query of a head: formulas stand with the operator
// (ops/attention_merge.cpp).
#include "kernels/cuda/attention_problem.cuh"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/table.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kWarps = 4;

// Where a head of (B, T, H*D) and its place in (B, H, T) are.
struct MergeLayout {
  std::int64_t rows, length, heads, dim;

  __device__ std::int64_t stat(std::int64_t row, std::int64_t h) const { return (row / length * heads + h) * length + row % length; }
};

MergeLayout layout_of(const Tensor& out, const Tensor& lse) {
  const base::Shape& shape = out.type.shape;
  return {shape.rows(), shape[1], lse.type.shape[1], shape[2] / lse.type.shape[1]};
}

// What each of two sets of keys counts for.
struct Shares {
  float lse, a, b;

  __device__ Shares(float lse_a, float lse_b) {
    const float larger = fmaxf(lse_a, lse_b);
    lse = larger == -INFINITY ? -INFINITY : larger + logf(expf(lse_a - larger) + expf(lse_b - larger));
    a = lse_a == -INFINITY ? 0.0f : expf(lse_a - lse);
    b = lse_b == -INFINITY ? 0.0f : expf(lse_b - lse);
  }
};

// A result may lie on the first operand it is made of: a warp has read a statistic before one of its lanes writes it.
template <typename A, typename B>
__global__ void merge(MergeLayout layout, const A* out_a, const float* lse_a, const B* out_b, const float* lse_b, A* out, float* lse) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (at >= layout.rows * layout.heads) return;
  const std::int64_t stat = layout.stat(at / layout.heads, at % layout.heads);
  const Shares shares(lse_a[stat], lse_b[stat]);
  __syncwarp();
  for (std::int64_t e = at * layout.dim + threadIdx.x; e < (at + 1) * layout.dim; e += 32)
    out[e] = from_f32<A>(shares.a * to_f32(out_a[e]) + shares.b * to_f32(out_b[e]));
  if (threadIdx.x == 0) lse[stat] = shares.lse;
}

template <typename A, typename B>
struct MergeGradients {
  const A* dout;
  const float* dlse;  // null: none arrived
  const A* out_a;
  const float* lse_a;
  const B* out_b;
  const float* lse_b;
  A* dout_a;
  float* dlse_a;
  B* dout_b;
  float* dlse_b;
};

template <typename A, typename B>
__global__ void merge_grad(MergeLayout layout, MergeGradients<A, B> in) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (at >= layout.rows * layout.heads) return;
  const std::int64_t stat = layout.stat(at / layout.heads, at % layout.heads);
  const Shares shares(in.lse_a[stat], in.lse_b[stat]);
  float apart = 0.0f;  // dout.(out_a - out_b)
  for (std::int64_t e = at * layout.dim + threadIdx.x; e < (at + 1) * layout.dim; e += 32) {
    const float dout = to_f32(in.dout[e]);
    apart = fmaf(dout, to_f32(in.out_a[e]) - to_f32(in.out_b[e]), apart);
    in.dout_a[e] = from_f32<A>(shares.a * dout);
    in.dout_b[e] = from_f32<B>(shares.b * dout);
  }
  apart = warp_sum(apart);
  if (threadIdx.x != 0) return;
  const float dlse = in.dlse == nullptr ? 0.0f : in.dlse[stat];
  in.dlse_a[stat] = shares.a * (dlse + shares.b * apart);
  in.dlse_b[stat] = shares.b * (dlse - shares.a * apart);
}

// use(A{}, B{}) for the element types of both outputs.
template <typename Use>
void with_elements(base::DType a, base::DType b, Use&& use) {
  with_element(a, [&](auto first) { with_element(b, [&](auto second) { use(first, second); }); });
}

unsigned grid_of(const MergeLayout& layout) { return blocks_for(layout.rows * layout.heads, kWarps); }

void merge_attention(const Call& call, cudaStream_t stream) {
  const MergeLayout layout = layout_of(call.inputs[0], call.inputs[1]);
  with_elements(call.inputs[0].type.dtype, call.inputs[2].type.dtype, [&](auto first, auto second) {
    using A = decltype(first);
    using B = decltype(second);
    merge<A, B><<<grid_of(layout), dim3(32, kWarps), 0, stream>>>(layout, call.inputs[0].as<const A>(), call.inputs[1].as<const float>(),
                                                                  call.inputs[2].as<const B>(), call.inputs[3].as<const float>(),
                                                                  call.outputs[0].as<A>(), call.outputs[1].as<float>());
  });
  check_launch("merge_attention");
}

void merge_attention_grad(const Call& call, cudaStream_t stream) {
  const bool of_lse = std::get<ops::MergeAttentionGrad>(call.op).of_lse;
  const std::span<const Tensor> inputs = call.inputs.subspan(of_lse ? 2 : 1);
  const MergeLayout layout = layout_of(inputs[0], inputs[1]);
  with_elements(inputs[0].type.dtype, inputs[2].type.dtype, [&](auto first, auto second) {
    using A = decltype(first);
    using B = decltype(second);
    const MergeGradients<A, B> in{call.inputs[0].as<const A>(), of_lse ? call.inputs[1].as<const float>() : nullptr,
                                  inputs[0].as<const A>(),      inputs[1].as<const float>(),
                                  inputs[2].as<const B>(),      inputs[3].as<const float>(),
                                  call.outputs[0].as<A>(),      call.outputs[1].as<float>(),
                                  call.outputs[2].as<B>(),      call.outputs[3].as<float>()};
    merge_grad<A, B><<<grid_of(layout), dim3(32, kWarps), 0, stream>>>(layout, in);
  });
  check_launch("merge_attention_grad");
}

// The gradient that arrives is of the merged output's type.
std::optional<std::string> refuse_merge_grad(const ops::KernelQuery& query) {
  const std::size_t first = std::get<ops::MergeAttentionGrad>(query.op).of_lse ? 2 : 1;
  if (query.inputs[0].dtype != query.inputs[first].dtype) return "the gradient is of another element type than the output";
  return refuse_other_floats(query);
}

constexpr Kernel kKernels[] = {
    {.op = "merge_attention", .name = "merge_attention.warps", .refusal = refuse_other_floats, .launch = merge_attention},
    {.op = "merge_attention_grad", .name = "merge_attention_grad.warps", .refusal = refuse_merge_grad, .launch = merge_attention_grad},
};

}  // namespace

std::span<const Kernel> merge_attention_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

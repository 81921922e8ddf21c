// Layer and RMS normalisation of rows, with the residual sum and its dropout before it: each operand passes through memory once.
#include "kernels/cuda/checks.h"
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/table.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

struct NormArguments {
  const void* x = nullptr;
  const void* r = nullptr;  // null: no residual
  Span weight;
  Span bias;  // null: none
  void* sum = nullptr;
  void* y = nullptr;
  float2* stats = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t first_row = 0;  // of the micro-batch's rows
  std::int64_t rows_per_sample = 1;
  float eps = 0.0f;
  bool centred = false;  // layer: the mean is part of the function
  DropoutSite site;
};

// sum = x + dropout(r), as it is stored: what is normalised must be what the backward pass will read.
template <typename T>
__device__ __forceinline__ uint4 add_residual(const NormArguments& a, const DropoutKey& key, std::int64_t row, std::int64_t column,
                                              const uint4& x_raw, const uint4& r_raw) {
  float x[kWide<T>], r[kWide<T>];
  decode_wide<T>(x_raw, x);
  decode_wide<T>(r_raw, r);
  if (a.site.samples != nullptr) {
    const std::int64_t of_all = a.first_row + row;
    const auto sample = static_cast<std::uint32_t>(a.site.samples[of_all / a.rows_per_sample]);
    float multipliers[kWide<T>];
    dropout_multipliers(a.site, key, sample, static_cast<std::uint64_t>(of_all % a.rows_per_sample * a.width + column), multipliers);
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) x[i] = fmaf(r[i], multipliers[i], x[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) x[i] += r[i];
  }
  return encode_wide<T>(x);
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kBlock) norm_rows(NormArguments a) {
  constexpr int kThreads = Shape::kThreads;
  constexpr int kVectors = Shape::kVectors;
  __shared__ float shared[2][Shape::kBlock / kWarp];
  __shared__ DropoutKey key;
  if (a.site.samples != nullptr) {
    if (threadIdx.x == 0) key = dropout_key(a.site);
    __syncthreads();
  }
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * Shape::kRows + threadIdx.x / kThreads;
  const std::int64_t start = row * a.width;
  const auto column_of = [&](int v) { return (v * kThreads + thread) * kWide<T>; };
  const auto is_there = [&](int v) { return row < a.rows && column_of(v) < a.width; };

  uint4 raw[kVectors], r_raw[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    raw[v] = r_raw[v] = make_uint4(0, 0, 0, 0);
    if (!is_there(v)) continue;
    raw[v] = *reinterpret_cast<const uint4*>(static_cast<const T*>(a.x) + start + column_of(v));
    if (a.r != nullptr) r_raw[v] = *reinterpret_cast<const uint4*>(static_cast<const T*>(a.r) + start + column_of(v));
  }
  float sum = 0.0f;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (a.r != nullptr && is_there(v)) {
      raw[v] = add_residual<T>(a, key, row, column_of(v), raw[v], r_raw[v]);
      *reinterpret_cast<uint4*>(static_cast<T*>(a.sum) + start + column_of(v)) = raw[v];
    }
    float x[kWide<T>];
    decode_wide<T>(raw[v], x);
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) sum += x[i];
  }
  const float mean = a.centred ? group_sum<kThreads>(sum, shared[0]) / static_cast<float>(a.width) : 0.0f;
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (!is_there(v)) continue;
    float x[kWide<T>];
    decode_wide<T>(raw[v], x);
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) squares = fmaf(x[i] - mean, x[i] - mean, squares);
  }
  const float variance = group_sum<kThreads>(squares, shared[1]) / static_cast<float>(a.width);
  const float inverse = 1.0f / sqrtf(variance + a.eps);
  if (row < a.rows && thread == 0) a.stats[row] = make_float2(mean, inverse);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (!is_there(v)) continue;
    float x[kWide<T>], weight[kWide<T>], bias[kWide<T>] = {};
    decode_wide<T>(raw[v], x);
    read_small(a.weight, column_of(v), weight);
    if (a.bias.data != nullptr) read_small(a.bias, column_of(v), bias);
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) x[i] = fmaf((x[i] - mean) * inverse, weight[i], bias[i]);
    *reinterpret_cast<uint4*>(static_cast<T*>(a.y) + start + column_of(v)) = encode_wide<T>(x);
  }
}

// Any width and any alignment: a block for each row, which it reads again for each step.
template <typename T>
__global__ void __launch_bounds__(256) norm_any(NormArguments a) {
  __shared__ float shared[2][256 / kWarp];
  __shared__ DropoutKey key;
  if (a.site.samples != nullptr) {
    if (threadIdx.x == 0) key = dropout_key(a.site);
    __syncthreads();
  }
  const std::int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(a.x) + row * a.width;
  float sum = 0.0f;
  if (a.r != nullptr) {
    const T* r = static_cast<const T*>(a.r) + row * a.width;
    T* stored = static_cast<T*>(a.sum) + row * a.width;
    for (std::int64_t c = threadIdx.x; c < a.width; c += 256) {
      float multiplier = 1.0f;
      if (a.site.samples != nullptr) {
        const std::int64_t of_all = a.first_row + row;
        multiplier = dropout_multiplier(a.site, key, static_cast<std::uint32_t>(a.site.samples[of_all / a.rows_per_sample]),
                                        static_cast<std::uint64_t>(of_all % a.rows_per_sample * a.width + c));
      }
      stored[c] = from_f32<T>(fmaf(to_f32(r[c]), multiplier, to_f32(x[c])));
    }
    x = stored;  // each thread reads back what it wrote itself
  }
  for (std::int64_t c = threadIdx.x; c < a.width; c += 256) sum += to_f32(x[c]);
  const float mean = a.centred ? group_sum<256>(sum, shared[0]) / static_cast<float>(a.width) : 0.0f;
  float squares = 0.0f;
  for (std::int64_t c = threadIdx.x; c < a.width; c += 256) squares = fmaf(to_f32(x[c]) - mean, to_f32(x[c]) - mean, squares);
  const float variance = group_sum<256>(squares, shared[1]) / static_cast<float>(a.width);
  const float inverse = 1.0f / sqrtf(variance + a.eps);
  if (threadIdx.x == 0) a.stats[row] = make_float2(mean, inverse);
  T* y = static_cast<T*>(a.y) + row * a.width;
  for (std::int64_t c = threadIdx.x; c < a.width; c += 256) {
    const float bias = a.bias.data != nullptr ? read_one(a.bias, c) : 0.0f;
    y[c] = from_f32<T>(fmaf((to_f32(x[c]) - mean) * inverse, read_one(a.weight, c), bias));
  }
}

NormArguments arguments_of(const Call& call) {
  const auto& op = std::get<ops::Norm>(call.op);
  const std::size_t weight = op.residual ? 2 : 1;
  const std::size_t samples = weight + (op.bias ? 2 : 1);
  const base::Shape& shape = call.inputs[0].type.shape;
  NormArguments a{.x = call.inputs[0].data,
                  .r = op.residual ? call.inputs[1].data : nullptr,
                  .weight = span_of(call.inputs[weight]),
                  .bias = op.bias ? span_of(call.inputs[weight + 1]) : Span{},
                  .sum = op.residual ? call.outputs[0].data : nullptr,
                  .y = call.outputs[op.residual ? 1 : 0].data,
                  .stats = call.outputs[op.residual ? 2 : 1].as<float2>(),
                  .rows = shape.rows(),
                  .width = shape[-1],
                  .first_row = op.first_row,
                  .rows_per_sample = 1,
                  .eps = static_cast<float>(op.eps),
                  .centred = op.kind == ops::NormKind::layer,
                  .site = {}};
  if (op.residual && op.rate > 0.0) {
    a.rows_per_sample = op.sample_rows > 0 ? op.sample_rows : a.rows / shape[0];
    a.site = dropout_site(op.rate, op.site, call.inputs[samples], call.inputs[samples + 1]);
  }
  return a;
}

void norm(const Call& call, cudaStream_t stream) {
  const NormArguments a = arguments_of(call);
  if (a.rows == 0) return;
  const DType dtype = call.inputs[0].type.dtype;
  const int vectors = row_vectors(a.width, dtype);
  const bool aligned =
      is_aligned(a.x) && is_aligned(a.r) && is_aligned(a.sum) && is_aligned(a.y) && are_aligned(a.weight, a.bias) && vectors > 0;
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (!aligned) {
      norm_any<T><<<static_cast<unsigned>(a.rows), 256, 0, stream>>>(a);
      return;
    }
    with_row_shape<false>(vectors, [&](auto shape) {
      using Shape = decltype(shape);
      norm_rows<T, Shape><<<blocks_for(a.rows, Shape::kRows), Shape::kBlock, 0, stream>>>(a);
    });
  });
  check_launch("norm");
}

constexpr Kernel kKernels[] = {{.op = "norm", .name = "norm.rows", .refusal = refuse_mixed_rows, .launch = norm}};

}  // namespace

std::span<const Kernel> norm_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

#include "kernels/cuda/head_softmax.h"

#include "kernels/cuda/checks.h"
#include "kernels/cuda/elements.cuh"

namespace plimsoll::kernels::cuda {

namespace {

// A row of logits is read twice. One large block a multiprocessor keeps so few rows under way that the second time they come from
// the cache; several loads of each thread under way make up for the few blocks.
constexpr int kThreads = 1024;
constexpr int kAtOnce = 4;
constexpr int kWarps = kThreads / 32;
constexpr std::int32_t kElsewhere = 0x7FFFFFFF;  // ops::kElsewhere

// A running maximum and the sum of exponentials below it.
struct Partial {
  float largest;
  float sum;
};

__device__ __forceinline__ Partial merged(Partial a, Partial b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == -INFINITY) return {largest, 0.0f};
  return {largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest)};
}

__device__ Partial block_merged(Partial own) {
  __shared__ Partial shared[kWarps];
  for (int offset = 16; offset > 0; offset /= 2)
    own = merged(own, {__shfl_xor_sync(~0u, own.largest, offset), __shfl_xor_sync(~0u, own.sum, offset)});
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  own = threadIdx.x % 32 < kWarps ? shared[threadIdx.x % 32] : Partial{-INFINITY, 0.0f};
  for (int offset = 16; offset > 0; offset /= 2)
    own = merged(own, {__shfl_xor_sync(~0u, own.largest, offset), __shfl_xor_sync(~0u, own.sum, offset)});
  return own;
}

// One block a row. Strides are multiples of 4 elements, so whole float4s can be read up to the stride; what lies behind the
// vocabulary is left out. A 16-bit gradient overwrites logits that the block has read: each tile is read by all before any
// of it is written.
template <typename T, bool kGradients>
__global__ void __launch_bounds__(kThreads, 1) softmax(LogitsChunk chunk, const ops::StepScalars* scalars) {
  const std::int64_t row = blockIdx.x;
  const auto bias = [&](int column) {
    if (chunk.f32_bias) return static_cast<const float*>(chunk.bias)[column];
    return to_f32(static_cast<const T*>(chunk.bias)[column]);
  };
  float* logits = chunk.logits + row * chunk.stride;
  const auto vocabulary = static_cast<int>(chunk.vocabulary);
  const int quads = (vocabulary + 3) / 4;
  const auto value = [&](float logit, int column) {
    if (column >= vocabulary) return -INFINITY;
    return chunk.bias == nullptr ? logit : logit + bias(column);
  };
  const auto load = [&](int quad) {
    const float4 four = reinterpret_cast<const float4*>(logits)[quad];
    return float4{value(four.x, 4 * quad), value(four.y, 4 * quad + 1), value(four.z, 4 * quad + 2), value(four.w, 4 * quad + 3)};
  };
  const auto load_within = [&](int quad, int end) { return quad < end ? load(quad) : float4{-INFINITY, -INFINITY, -INFINITY, -INFINITY}; };
  const std::int32_t target = chunk.targets[row];
  const bool counted = target >= 0;
  Partial own{-INFINITY, 0.0f};
  for (int first = static_cast<int>(threadIdx.x); first < quads; first += kThreads * kAtOnce) {
    float4 x[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) x[n] = load_within(first + n * kThreads, quads);
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const float largest = fmaxf(fmaxf(x[n].x, x[n].y), fmaxf(x[n].z, x[n].w));
      if (largest == -INFINITY) continue;  // nothing of the vocabulary
      if (largest > own.largest) {
        own.sum *= __expf(own.largest - largest);
        own.largest = largest;
      }
      own.sum += __expf(x[n].x - own.largest) + __expf(x[n].y - own.largest) + __expf(x[n].z - own.largest) + __expf(x[n].w - own.largest);
    }
  }
  const Partial all = block_merged(own);
  const float lse = all.largest + logf(all.sum);
  if (threadIdx.x == 0) {
    const float at_target = counted && target != kElsewhere ? value(logits[target], target) : 0.0f;
    chunk.losses[row] = counted ? lse - at_target : 0.0f;
  }
  if constexpr (kGradients) {
    __syncthreads();
    const float scale = counted ? scalars->loss_scale * scalars->inverse_tokens : 0.0f;
    const auto gradient = [&](float x, int column) {
      if (column >= vocabulary) return 0.0f;
      return (__expf(x - lse) - (column == target ? 1.0f : 0.0f)) * scale;
    };
    T* out = reinterpret_cast<T*>(logits);
    const int all_quads = static_cast<int>(chunk.stride / 4);
    const auto store = [&](int quad, const float4& x) {
      alignas(16) T four[4] = {from_f32<T>(gradient(x.x, 4 * quad)), from_f32<T>(gradient(x.y, 4 * quad + 1)),
                               from_f32<T>(gradient(x.z, 4 * quad + 2)), from_f32<T>(gradient(x.w, 4 * quad + 3))};
      if constexpr (sizeof(T) == 4) {
        reinterpret_cast<float4*>(out)[quad] = *reinterpret_cast<const float4*>(four);
      } else {
        reinterpret_cast<float2*>(out)[quad] = *reinterpret_cast<const float2*>(four);
      }
    };
    for (int tile = 0; tile < all_quads; tile += kThreads * kAtOnce) {
      const int first = tile + static_cast<int>(threadIdx.x);
      float4 x[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) x[n] = load_within(first + n * kThreads, all_quads);
      if constexpr (sizeof(T) < sizeof(float)) __syncthreads();
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        if (first + n * kThreads < all_quads) store(first + n * kThreads, x[n]);
      }
    }
  }
}

template <typename T>
__global__ void column_sums(const T* gradients, std::int64_t rows, std::int64_t columns, std::int64_t stride, bool add, float* sums) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (std::int64_t row = 0; row < rows; ++row) sum += to_f32(gradients[row * stride + column]);
  sums[column] = add ? sums[column] + sum : sum;
}

template <typename T>
__global__ void finish_sums(const float* sums, const T* present, std::int64_t count, T* out) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index < count) out[index] = from_f32<T>(present == nullptr ? sums[index] : sums[index] + to_f32(present[index]));
}

}  // namespace

void launch_softmax(const LogitsChunk& chunk, const ops::StepScalars* scalars, base::DType dtype, cudaStream_t stream) {
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (scalars != nullptr) {
      softmax<T, true><<<static_cast<unsigned>(chunk.rows), kThreads, 0, stream>>>(chunk, scalars);
    } else {
      softmax<T, false><<<static_cast<unsigned>(chunk.rows), kThreads, 0, stream>>>(chunk, scalars);
    }
  });
  check_launch("softmax of a chunk of logits");
}

void launch_column_sums(const void* gradients, base::DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride, bool add,
                        float* sums, cudaStream_t stream) {
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    column_sums<T><<<blocks_for(columns, 256), 256, 0, stream>>>(static_cast<const T*>(gradients), rows, columns, stride, add, sums);
  });
  check_launch("sums of a chunk's columns");
}

void launch_finish_sums(const float* sums, const void* present, std::int64_t count, base::DType dtype, void* out, cudaStream_t stream) {
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    finish_sums<T><<<blocks_for(count, 256), 256, 0, stream>>>(sums, static_cast<const T*>(present), count, static_cast<T*>(out));
  });
  check_launch("rounding of sums");
}

}  // namespace plimsoll::kernels::cuda

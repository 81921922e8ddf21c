// Losses and gradients of rows of logits. Where the device has clusters of blocks, those of a cluster share a row: each copies its part to
// shared memory, and they tell each other their maxima and sums, so that logits are read once, four rows or more are under way on a
// multiprocessor, and one row's loads run beside another's exponentials. Elsewhere, and for rows that are too long for that, a block has a
// row and reads it twice.
#include "kernels/cuda/head_softmax.h"

#include <cooperative_groups.h>

#include <utility>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/staged_rows.cuh"

namespace plimsoll::kernels::cuda {

namespace {

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

template <int kThreads>
__device__ Partial block_merged(Partial own) {
  constexpr int kWarps = kThreads / 32;
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

// What is read at once of a row of logits, as f32.
template <typename L>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(L));

template <typename L>
struct Pack {
  float values[kPack<L>];
};

template <typename L>
__device__ __forceinline__ Pack<L> unpacked(const uint4& bits) {
  alignas(16) L elements[kPack<L>];
  *reinterpret_cast<uint4*>(elements) = bits;
  Pack<L> pack;
#pragma unroll
  for (int n = 0; n < kPack<L>; ++n) pack.values[n] = to_f32(elements[n]);
  return pack;
}

// A row's logits (L) by packs and their gradients (T). Strides are multiples of 64 elements, so whole packs can be read up to the stride;
// what lies behind the vocabulary is left out.
template <typename T, typename L>
struct Row {
  const LogitsChunk& chunk;
  int vocabulary;
  std::int32_t target;

  __device__ Row(const LogitsChunk& of, std::int64_t row)
      : chunk(of), vocabulary(static_cast<int>(of.vocabulary)), target(of.targets[row]) {}

  __device__ bool counted() const { return target >= 0; }
  __device__ bool has_target() const { return counted() && target != kElsewhere; }
  __device__ float value(float logit, int column) const {
    if (column >= vocabulary) return -INFINITY;
    if (chunk.bias == nullptr) return logit;
    return logit + (chunk.f32_bias ? static_cast<const float*>(chunk.bias)[column] : to_f32(static_cast<const T*>(chunk.bias)[column]));
  }
  __device__ Pack<L> values(const uint4& bits, int pack) const {
    Pack<L> of = unpacked<L>(bits);
#pragma unroll
    for (int n = 0; n < kPack<L>; ++n) of.values[n] = value(of.values[n], kPack<L> * pack + n);
    return of;
  }
  __device__ float scale(const ops::StepScalars* scalars) const { return counted() ? scalars->loss_scale * scalars->inverse_tokens : 0.0f; }
  // (probability - [is the target]) * scale, of a pack; zeros behind the vocabulary.
  __device__ void store_gradients(const Pack<L>& x, int pack, float lse, float scale, T* out) const {
    struct alignas(sizeof(T) * kPack<L>) Gradients {
      T values[kPack<L>];
    } gradients;
#pragma unroll
    for (int n = 0; n < kPack<L>; ++n) {
      const int column = kPack<L> * pack + n;
      const float gradient = (__expf(x.values[n] - lse) - (column == target ? 1.0f : 0.0f)) * scale;
      gradients.values[n] = from_f32<T>(column < vocabulary ? gradient : 0.0f);
    }
    reinterpret_cast<Gradients*>(out)[pack] = gradients;
  }
};

// Packs of a thread that are under way or worked on together: sixteen logits.
template <typename L>
inline constexpr int kAtOnce = 16 / kPack<L>;

// Adds some packs to a thread's maximum and sum.
template <typename L>
__device__ __forceinline__ void add_to(Partial& own, const Pack<L> (&x)[kAtOnce<L>]) {
  float largest = -INFINITY;
#pragma unroll
  for (int n = 0; n < kAtOnce<L>; ++n) {
#pragma unroll
    for (const float value : x[n].values) largest = fmaxf(largest, value);
  }
  if (largest > own.largest) {
    own.sum *= __expf(own.largest - largest);
    own.largest = largest;
  }
  const float base = own.largest == -INFINITY ? 0.0f : own.largest;  // as long as there was nothing of the vocabulary
#pragma unroll
  for (int n = 0; n < kAtOnce<L>; ++n) {
    float sum = 0.0f;
#pragma unroll
    for (const float value : x[n].values) sum += __expf(value - base);
    own.sum += sum;
  }
}

// ---- a block for each row: one large block a multiprocessor keeps so few rows under way that the second time they come from the cache

constexpr int kRowThreads = 1024;

// A 16-bit gradient overwrites logits that the block has read: each tile is read by all before any of it is written.
template <typename T, typename L, bool kGradients>
__global__ void __launch_bounds__(kRowThreads, 1) softmax(LogitsChunk chunk, const ops::StepScalars* scalars) {
  const Row<T, L> row(chunk, blockIdx.x);
  L* logits = static_cast<L*>(chunk.logits) + blockIdx.x * chunk.stride;
  const int packs = static_cast<int>(chunk.stride / kPack<L>);
  const auto load = [&](int first, Pack<L>(&x)[kAtOnce<L>]) {
    uint4 bits[kAtOnce<L>];
#pragma unroll
    for (int n = 0; n < kAtOnce<L>; ++n) {
      const int pack = first + n * kRowThreads;
      bits[n] = pack < packs ? reinterpret_cast<const uint4*>(logits)[pack] : uint4{};
    }
#pragma unroll
    for (int n = 0; n < kAtOnce<L>; ++n) x[n] = row.values(bits[n], first + n * kRowThreads);
  };
  Partial own{-INFINITY, 0.0f};
  for (int first = static_cast<int>(threadIdx.x); first < packs; first += kRowThreads * kAtOnce<L>) {
    Pack<L> x[kAtOnce<L>];
    load(first, x);
    add_to<L>(own, x);
  }
  const Partial all = block_merged<kRowThreads>(own);
  const float lse = all.largest + logf(all.sum);
  if (threadIdx.x == 0) {
    const float at_target = row.has_target() ? row.value(to_f32(logits[row.target]), row.target) : 0.0f;
    chunk.losses[blockIdx.x] = row.counted() ? lse - at_target : 0.0f;
  }
  if constexpr (kGradients) {
    __syncthreads();
    const float scale = row.scale(scalars);
    for (int tile = 0; tile < packs; tile += kRowThreads * kAtOnce<L>) {
      const int first = tile + static_cast<int>(threadIdx.x);
      Pack<L> x[kAtOnce<L>];
      load(first, x);
      if constexpr (sizeof(T) < sizeof(L)) __syncthreads();
#pragma unroll
      for (int n = 0; n < kAtOnce<L>; ++n) {
        if (first + n * kRowThreads < packs) row.store_gradients(x[n], first + n * kRowThreads, lse, scale, reinterpret_cast<T*>(logits));
      }
    }
  }
}

// ---- a cluster for each row

constexpr int kPartThreads = 256;
constexpr int kMostParts = 8;                  // what every device with clusters takes
constexpr std::int64_t kFineBytes = 55 << 10;  // of a part: four blocks to a multiprocessor
constexpr std::int64_t kMostPartBytes = 224 << 10;

// What the blocks of a cluster tell each other.
struct PartResult {
  Partial partial;
  float at_target;
};

// Every logit of the row is in some block's shared memory before any gradient is written over it: blocks meet in between.
template <typename T, typename L, bool kGradients>
__global__ void __launch_bounds__(kPartThreads, 4) softmax_parts(LogitsChunk chunk, const ops::StepScalars* scalars, int part_packs) {
#if __CUDA_ARCH__ >= 900
  namespace groups = cooperative_groups;
  extern __shared__ uint4 memory[];
  __shared__ PartResult results[kMostParts];
  const groups::cluster_group cluster = groups::this_cluster();
  auto started = cluster.barrier_arrive();
  const auto parts = static_cast<int>(cluster.num_blocks());
  const auto part = static_cast<int>(cluster.block_rank());
  const std::int64_t index = blockIdx.x / parts;
  const Row<T, L> row(chunk, index);
  L* logits = static_cast<L*>(chunk.logits) + index * chunk.stride;
  const int begin = part * part_packs;
  const int end = min(begin + part_packs, static_cast<int>(chunk.stride / kPack<L>));
  const auto thread = static_cast<int>(threadIdx.x);

  // Each thread copies what it reads itself. All copies are under way before the first is waited for.
  for (int pack = begin + thread; pack < end; pack += kPartThreads)
    copy_in_background(memory + (pack - begin), reinterpret_cast<const uint4*>(logits) + pack);
  close_copies();
  wait_for_copies<0>();
  Partial own{-INFINITY, 0.0f};
  for (int first = begin + thread; first < end; first += kPartThreads * kAtOnce<L>) {
    Pack<L> x[kAtOnce<L>];
#pragma unroll
    for (int n = 0; n < kAtOnce<L>; ++n) {
      const int pack = first + n * kPartThreads;
      // Columns behind the vocabulary count as minus infinity, and so do those of the next part.
      x[n] = row.values(pack < end ? memory[pack - begin] : uint4{}, pack < end ? pack : row.vocabulary);
    }
    add_to<L>(own, x);
  }
  own = block_merged<kPartThreads>(own);     // a barrier: all of the part is there
  cluster.barrier_wait(std::move(started));  // the others' memory is theirs
  if (thread < parts) {
    const int place = row.target - kPack<L> * begin;
    const bool here = row.has_target() && place >= 0 && row.target < kPack<L> * end;
    const float at_target = here ? row.value(to_f32(reinterpret_cast<const L*>(memory)[place]), row.target) : 0.0f;
    *cluster.map_shared_rank(results + part, thread) = {own, at_target};
  }
  cluster.sync();
  Partial all = results[0].partial;
  float at_target = results[0].at_target;
  for (int other = 1; other < parts; ++other) {
    all = merged(all, results[other].partial);
    at_target += results[other].at_target;
  }
  const float lse = all.largest + logf(all.sum);
  if (part == 0 && thread == 0) chunk.losses[index] = row.counted() ? lse - at_target : 0.0f;
  if constexpr (kGradients) {
    const float scale = row.scale(scalars);
    for (int pack = begin + thread; pack < end; pack += kPartThreads)
      row.store_gradients(row.values(memory[pack - begin], pack), pack, lse, scale, reinterpret_cast<T*>(logits));
  }
#endif
}

bool has_clusters() {
  int device = 0;
  int major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  return major >= 9;
}

// Blocks for a row of so many packs: as few as leave room for four blocks on a multiprocessor; 0: it is too long.
int parts_for(std::int64_t packs) {
  for (int parts = 1; parts <= kMostParts; parts *= 2) {
    const std::int64_t bytes = (packs + parts - 1) / parts * static_cast<std::int64_t>(sizeof(uint4));
    if (bytes <= kFineBytes || (parts == kMostParts && bytes <= kMostPartBytes)) return parts;
  }
  return 0;
}

template <typename T, typename L, bool kGradients>
void launch_rows(const LogitsChunk& chunk, const ops::StepScalars* scalars, cudaStream_t stream) {
  const std::int64_t packs = chunk.stride / kPack<L>;
  const int parts = has_clusters() ? parts_for(packs) : 0;
  if (parts == 0) {
    softmax<T, L, kGradients><<<static_cast<unsigned>(chunk.rows), kRowThreads, 0, stream>>>(chunk, scalars);
    return;
  }
  const auto part_packs = static_cast<int>((packs + parts - 1) / parts);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(chunk.rows * parts));
  config.blockDim = dim3(kPartThreads);
  config.dynamicSmemBytes = sizeof(uint4) * static_cast<std::size_t>(part_packs);
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(parts), 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  allow_shared_bytes(softmax_parts<T, L, kGradients>, config.dynamicSmemBytes);
  check(cudaLaunchKernelEx(&config, softmax_parts<T, L, kGradients>, chunk, scalars, part_packs), "softmax of a chunk of logits");
}

template <typename T, typename L>
void launch_softmax_of(const LogitsChunk& chunk, const ops::StepScalars* scalars, cudaStream_t stream) {
  if (scalars != nullptr) {
    launch_rows<T, L, true>(chunk, scalars, stream);
  } else {
    launch_rows<T, L, false>(chunk, scalars, stream);
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
  if (chunk.dtype == base::DType::bf16) {
    if (dtype != base::DType::bf16) stop_on_element(dtype);
    launch_softmax_of<__nv_bfloat16, __nv_bfloat16>(chunk, scalars, stream);
  } else {
    with_element(dtype, [&](auto zero) { launch_softmax_of<decltype(zero), float>(chunk, scalars, stream); });
  }
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

// From 16-bit or f32 tensors to 8-bit ones, as they are and transposed, in one pass over memory; the largest magnitude is found on the
// way, or in a pass before where the scale depends on it.
//
// A block makes a tile of 128 x 128: rows are read and written 128 bytes at a time, the bytes meet in shared memory, and columns go out
// 128 bytes at a time too. Words of a row are rotated by its group of sixteen, so that neither way two threads meet in a bank; four
// words of four rows become four words of four columns by exchanging bytes in registers.
#include <cuda_fp8.h>

#include <algorithm>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/table.h"
#include "kernels/cuda/workspace.h"
#include "ops/op.h"
#include "ops/scaling.h"

namespace plimsoll::kernels::cuda {

namespace {

using base::DType;
using ops::ActivationKind;

constexpr int kTile = 128;
constexpr int kThreads = 256;
constexpr int kVector = 8;         // elements that a thread reads at once
constexpr int kWords = kTile / 4;  // of a row of the tile in shared memory
constexpr int kAtOnce = 4;         // vectors of a thread that are under way together
constexpr int kAmaxBlocks = 528;   // four for each multiprocessor of a large GPU
constexpr int kRareBlocks = 132;   // where there is a history, and only its first micro-batch needs more

struct Vector {
  float values[kVector];
};

// A vector as it lies in memory: loads that are under way together are made before any of them is used.
template <typename T>
struct Raw {
  uint4 words[kVector * sizeof(T) / sizeof(uint4)];
};

template <typename T>
__device__ __forceinline__ Raw<T> load_raw(const T* from) {
  Raw<T> raw;
#pragma unroll
  for (std::size_t word = 0; word < sizeof raw.words / sizeof(uint4); ++word)
    raw.words[word] = __ldg(reinterpret_cast<const uint4*>(from) + word);
  return raw;
}

template <typename T>
__device__ __forceinline__ Vector widened(const Raw<T>& raw) {
  T elements[kVector];
  memcpy(elements, &raw, sizeof raw);
  Vector vector;
#pragma unroll
  for (int i = 0; i < kVector; ++i) vector.values[i] = to_f32(elements[i]);
  return vector;
}

// z of a vector: activation(x), or x times the slopes at `pre`.
template <ActivationKind kind, typename T>
__device__ __forceinline__ Vector made_of(const Raw<T>& x, const Raw<T>& pre, bool slopes) {
  Vector vector = widened(x);
  if constexpr (kind != ActivationKind::none) {
    if (slopes) {
      const Vector before = widened(pre);
#pragma unroll
      for (int i = 0; i < kVector; ++i) vector.values[i] *= activation_slope<kind>(before.values[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) vector.values[i] = activation<kind>(vector.values[i]);
    }
  }
  return vector;
}

// kAtOnce vectors of x, and of `pre` where there are slopes; zeros where there is none.
template <ActivationKind kind, typename T>
struct Vectors {
  Raw<T> x[kAtOnce];
  Raw<T> pre[kind == ActivationKind::none ? 1 : kAtOnce];

  __device__ __forceinline__ void load(int n, const T* from, const T* from_pre, std::int64_t first, bool inside) {
    x[n] = inside ? load_raw(from + first) : Raw<T>{};
    if constexpr (kind != ActivationKind::none) pre[n] = inside && from_pre != nullptr ? load_raw(from_pre + first) : Raw<T>{};
  }
  __device__ __forceinline__ Vector made(int n, bool slopes) const {
    return made_of<kind>(x[n], pre[kind == ActivationKind::none ? 0 : n], slopes);
  }
};

// Magnitudes as the bits of their f32, which are in the same order; NaN is beyond infinity, so it is not lost.
__device__ __forceinline__ unsigned magnitude(const Vector& vector) {
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i) largest = max(largest, __float_as_uint(vector.values[i]) & 0x7FFFFFFFu);
  return largest;
}

// Of a block, for its first thread. Infinity stands for everything that is not finite.
__device__ unsigned block_largest(unsigned own) {
  __shared__ unsigned largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  own = __reduce_max_sync(0xFFFFFFFFu, own);
  if (threadIdx.x % 32 == 0) atomicMax(&largest, own);
  __syncthreads();
  return min(largest, 0x7F800000u);
}

// By a whole warp: one load a thread, where one thread alone would wait for them in turn.
__device__ __forceinline__ float warp_largest_of(const float* history, int entries) {
  unsigned largest = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < entries; i += 32) largest = max(largest, __float_as_uint(history[i]));
  return __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, largest));
}

// Each block's largest, to `found`; `history`: where it holds anything there is nothing to find out. Makes `amax` ready for the pass behind
// it.
template <typename T, ActivationKind kind>
__global__ void __launch_bounds__(kThreads)
    find_amax(const T* x, const T* pre, std::int64_t vectors, const float* history, int entries, unsigned* amax, float* found) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *amax = 0;
  if (entries > 0 && warp_largest_of(history, entries) > 0.0f) return;
  unsigned largest = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; index < vectors; index += kAtOnce * step) {
    Vectors<kind, T> some;
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) some.load(n, x, pre, (index + n * step) * kVector, index + n * step < vectors);
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) largest = max(largest, magnitude(some.made(n, pre != nullptr)));
  }
  largest = block_largest(largest);
  if (threadIdx.x == 0) found[blockIdx.x] = __uint_as_float(largest);
}

struct Quantization {
  std::int64_t rows, columns;
  const float* history;
  int entries;
  unsigned char* q;
  unsigned char* transposed;
  float* scale;
  unsigned* amax;      // noted on the way
  const float* found;  // by find_amax, where the history is empty
  int blocks;          // that found it
  float* partials;     // (tiles of rows, columns): sums of columns; null: nobody wants them
};

template <DType to>
__device__ __forceinline__ uint2 convert(const Vector& vector, float inverse) {
  constexpr __nv_fp8_interpretation_t kFormat = to == DType::f8e4m3 ? __NV_E4M3 : __NV_E5M2;
  unsigned short pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pairs[i] =
        __nv_cvt_float2_to_fp8x2(make_float2(vector.values[2 * i] * inverse, vector.values[2 * i + 1] * inverse), __NV_SATFINITE, kFormat);
  return make_uint2(pairs[0] | static_cast<unsigned>(pairs[1]) << 16, pairs[2] | static_cast<unsigned>(pairs[3]) << 16);
}

// Four words of four bytes each, transposed.
__device__ __forceinline__ void transpose_bytes(unsigned (&w)[4]) {
  const unsigned a = __byte_perm(w[0], w[1], 0x5140);
  const unsigned b = __byte_perm(w[0], w[1], 0x7362);
  const unsigned c = __byte_perm(w[2], w[3], 0x5140);
  const unsigned d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, c, 0x5410);
  w[1] = __byte_perm(a, c, 0x7632);
  w[2] = __byte_perm(b, d, 0x5410);
  w[3] = __byte_perm(b, d, 0x7632);
}

__device__ __forceinline__ int word_at(int row, int word) { return row * kWords + ((word + 4 * (row / 16)) & (kWords - 1)); }

// The sixteen threads that have the same columns put their sums together in order.
__device__ void write_partials(const Vector& own, const Quantization& with, std::int64_t first_column) {
  constexpr int kLines = kThreads / (kTile / kVector);
  __shared__ float sums[kLines][kTile];
  const int place = static_cast<int>(threadIdx.x) % (kTile / kVector);
  const int line = static_cast<int>(threadIdx.x) / (kTile / kVector);
#pragma unroll
  for (int i = 0; i < kVector; ++i) sums[line][place * kVector + i] = own.values[i];
  __syncthreads();
  const auto column = static_cast<int>(threadIdx.x);
  if (column >= kTile || first_column + column >= with.columns) return;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kLines; ++i) sum += sums[i][column];
  with.partials[blockIdx.y * with.columns + first_column + column] = sum;
}

template <typename T, ActivationKind kind, DType to>
__global__ void __launch_bounds__(kThreads) quantize_tiles(const T* x, const T* pre, Quantization with) {
  __shared__ __align__(16) unsigned tile[kTile * kWords];
  constexpr int kLines = kThreads / (kTile / kVector);  // of the tile in one pass
  const int place = static_cast<int>(threadIdx.x) % (kTile / kVector);
  const int first_line = static_cast<int>(threadIdx.x) / (kTile / kVector);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t column = first_column + place * kVector;
  const auto inside = [&](int line) { return first_row + line < with.rows && column < with.columns; };
  const auto load = [&](int pass) {
    Vectors<kind, T> some;
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int line = first_line + (pass + n) * kLines;
      some.load(n, x, pre, (first_row + line) * with.columns + column, inside(line));
    }
    return some;
  };
  Vectors<kind, T> some = load(0);
  float before = warp_largest_of(with.history, with.entries);
  if (!(before > 0.0f)) before = warp_largest_of(with.found, with.blocks);
  const float scale = ops::scale_for(before, to);
  const float inverse = 1.0f / scale;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *with.scale = scale;
  unsigned largest = 0;
  Vector sums{};
#pragma unroll
  for (int pass = 0; pass < kTile / kLines; pass += kAtOnce) {
    if (pass > 0) some = load(pass);
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int line = first_line + (pass + n) * kLines;
      if (!inside(line)) continue;
      const Vector vector = some.made(n, pre != nullptr);
      largest = max(largest, magnitude(vector));
      if (with.partials != nullptr) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) sums.values[i] += vector.values[i];
      }
      const uint2 bytes = convert<to>(vector, inverse);
      *reinterpret_cast<uint2*>(with.q + (first_row + line) * with.columns + column) = bytes;
      *reinterpret_cast<uint2*>(tile + word_at(line, 2 * place)) = bytes;
    }
  }
  __syncthreads();
  // Eight threads make the column; each has sixteen rows of four columns.
  const int group = static_cast<int>(threadIdx.x) % 8;
  const int word = static_cast<int>(threadIdx.x) / 8;
  const std::int64_t row = first_row + group * 16;
  if (row < with.rows && first_column + word * 4 < with.columns) {
    unsigned columns[4][4];  // by column: sixteen rows
#pragma unroll
    for (int four = 0; four < 4; ++four) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = tile[word_at(group * 16 + four * 4 + i, word)];
      transpose_bytes(words);
#pragma unroll
      for (int i = 0; i < 4; ++i) columns[i][four] = words[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned char* to_column = with.transposed + (first_column + word * 4 + i) * with.rows + row;
      *reinterpret_cast<uint4*>(to_column) = make_uint4(columns[i][0], columns[i][1], columns[i][2], columns[i][3]);
    }
  }
  largest = block_largest(largest);
  if (threadIdx.x == 0) atomicMax(with.amax, largest);
  if (with.partials != nullptr) write_partials(sums, with, first_column);
}

struct Scratch {
  float* found;  // by find_amax
  float* partials;

  Scratch(const ops::Quantize& op, const base::Shape& x, Workspace& pieces)
      : found(pieces.take<float>(kAmaxBlocks)), partials(pieces.take<float>(op.sums ? (x.rows() + kTile - 1) / kTile * x[-1] : 0)) {}
};

template <typename T, ActivationKind kind, DType to>
void launch_quantize(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::Quantize>(call.op);
  const Tensor& x = call.inputs[0];
  const T* pre = op.slopes ? call.inputs[1].as<const T>() : nullptr;
  const float* history = op.history > 0 ? call.inputs[op.slopes ? 2 : 1].as<const float>() : nullptr;
  Workspace pieces(call.workspace);
  const Scratch scratch(op, x.type.shape, pieces);
  const auto entries = static_cast<int>(op.history);
  auto* amax = call.outputs[3].as<unsigned>();
  const std::int64_t vectors = x.type.shape.elements() / kVector;
  const std::int64_t most = entries > 0 ? kRareBlocks : kAmaxBlocks;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(most, (vectors + kThreads - 1) / kThreads));
  find_amax<T, kind><<<blocks, kThreads, 0, stream>>>(x.as<const T>(), pre, vectors, history, entries, amax, scratch.found);
  check_launch("quantize");
  const Quantization with{.rows = x.type.shape.rows(),
                          .columns = x.type.shape[-1],
                          .history = history,
                          .entries = entries,
                          .q = call.outputs[0].as<unsigned char>(),
                          .transposed = call.outputs[1].as<unsigned char>(),
                          .scale = call.outputs[2].as<float>(),
                          .amax = amax,
                          .found = scratch.found,
                          .blocks = static_cast<int>(blocks),
                          .partials = op.sums ? scratch.partials : nullptr};
  const dim3 grid(blocks_for(with.columns, kTile), blocks_for(with.rows, kTile));
  quantize_tiles<T, kind, to><<<grid, kThreads, 0, stream>>>(x.as<const T>(), pre, with);
  check_launch("quantize");
  if (!op.sums) return;
  launch_part_sums({.partials = scratch.partials,
                    .parts = grid.y,
                    .stride = with.columns,
                    .width = with.columns,
                    .totals = 1,
                    .total = {span_of(call.outputs[4]), {}},
                    .present = {op.accumulate ? span_of(call.inputs.back()) : Span{}, {}}},
                   stream);
}

void quantize(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::Quantize>(call.op);
  with_element(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_activation(op.activation, [&](auto kind) {
      constexpr ActivationKind kKind = decltype(kind)::value;
      if (op.dtype == DType::f8e4m3) {
        launch_quantize<T, kKind, DType::f8e4m3>(call, stream);
      } else {
        launch_quantize<T, kKind, DType::f8e5m2>(call, stream);
      }
    });
  });
}

std::int64_t quantize_workspace(const ops::KernelQuery& query) {
  Workspace pieces;
  const Scratch scratch(std::get<ops::Quantize>(query.op), query.inputs[0].shape, pieces);
  return pieces.bytes();
}

std::optional<std::string> refuse_quantize(const ops::KernelQuery& query) {
  if (!is_element(query.inputs[0].dtype)) return "x is not f32, bf16 or f16";
  if (query.outputs.size() > 4 && !is_element(query.outputs[4].dtype)) return "the sums are not f32, bf16 or f16";
  return std::nullopt;
}

// One warp: entries move one place, in order. The new one is the largest of all ranks'.
__global__ void __launch_bounds__(32) shift_history(float* history, int entries, const float* amaxes, int ranks) {
  const float largest = warp_largest_of(amaxes, ranks);
  for (int first = 0; first < entries; first += 32) {
    const int i = first + static_cast<int>(threadIdx.x);
    const float next = i + 1 < entries ? history[i + 1] : largest;
    __syncwarp();
    if (i < entries) history[i] = next;
    __syncwarp();
  }
}

void note_amax(const Call& call, cudaStream_t stream) {
  const auto elements = [](const Tensor& tensor) { return static_cast<int>(tensor.type.shape.elements()); };
  shift_history<<<1, 32, 0, stream>>>(call.outputs[0].as<float>(), elements(call.outputs[0]), call.inputs[1].as<const float>(),
                                      elements(call.inputs[1]));
  check_launch("note_amax");
}

constexpr Kernel kKernels[] = {
    {.op = "quantize", .name = "quantize.tiles", .refusal = refuse_quantize, .workspace = quantize_workspace, .launch = quantize},
    {.op = "note_amax", .name = "note_amax.shift", .launch = note_amax},
};

}  // namespace

std::span<const Kernel> quantize_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda

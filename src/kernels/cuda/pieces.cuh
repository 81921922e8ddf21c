// Elements on their way between memory and f32 registers.
//
// Two forms. Element-wise kernels take pieces of four elements whose type is known at run time: a branch that all threads take alike
// costs nothing beside memory, and any mix of types works with one kernel. Row kernels, which hold rows in registers, are templates
// over the type and take 16 bytes at a time. In both, raw words are fetched first and decoded later, so that loads of several operands
// are under way at once.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/dtype.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernel.h"

namespace plimsoll::kernels::cuda {

using base::DType;

// What a kernel sees of a tensor of f32, bf16 or f16.
struct Span {
  void* data = nullptr;
  DType dtype = DType::f32;
};

inline Span span_of(const Tensor& tensor) { return {tensor.data, tensor.type.dtype}; }

// 16-byte accesses may start there. A missing operand is no obstacle.
inline bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

template <typename... Spans>
bool are_aligned(const Spans&... spans) {
  return (is_aligned(spans.data) && ...);
}

// ---- single elements

__device__ __forceinline__ float read_one(const Span& span, std::int64_t index) {
  switch (span.dtype) {
    case DType::bf16: return to_f32(static_cast<const __nv_bfloat16*>(span.data)[index]);
    case DType::f16: return to_f32(static_cast<const __half*>(span.data)[index]);
    default: return static_cast<const float*>(span.data)[index];
  }
}

__device__ __forceinline__ void write_one(const Span& span, std::int64_t index, float value) {
  switch (span.dtype) {
    case DType::bf16: static_cast<__nv_bfloat16*>(span.data)[index] = from_f32<__nv_bfloat16>(value); return;
    case DType::f16: static_cast<__half*>(span.data)[index] = from_f32<__half>(value); return;
    default: static_cast<float*>(span.data)[index] = value;
  }
}

// ---- pairs in a word

__device__ __forceinline__ float2 pair_of(std::uint32_t word, DType dtype) {
  if (dtype == DType::bf16) return {__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u)};
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}

__device__ __forceinline__ std::uint32_t word_of(float low, float high, DType dtype) {
  if (dtype == DType::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// ---- pieces of four

inline constexpr int kPiece = 4;

// Where a thread works: elements [first, first + count); `whole` if all four are there and lie aligned.
struct Piece {
  std::int64_t first = 0;
  int count = 0;
  bool whole = false;
};

__device__ __forceinline__ Piece piece_at(std::int64_t first, std::int64_t elements, bool aligned) {
  const std::int64_t left = elements - first;
  const int count = left >= kPiece ? kPiece : left > 0 ? static_cast<int>(left) : 0;
  return {first, count, aligned && count == kPiece};
}

struct Raw {
  std::uint32_t word[kPiece];  // one for each f32, or for each pair of 16-bit elements in the first two
};

__device__ __forceinline__ Raw fetch(const Span& span, const Piece& piece) {
  Raw raw{};
  if (span.dtype == DType::f32) {
    const auto* from = static_cast<const std::uint32_t*>(span.data) + piece.first;
    if (piece.whole) {
      const uint4 words = *reinterpret_cast<const uint4*>(from);
      return {{words.x, words.y, words.z, words.w}};
    }
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i < piece.count) raw.word[i] = from[i];
    }
    return raw;
  }
  const auto* from = static_cast<const std::uint16_t*>(span.data) + piece.first;
  if (piece.whole) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    return {{words.x, words.y, 0, 0}};
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    if (i < piece.count) raw.word[i / 2] |= static_cast<std::uint32_t>(from[i]) << (16 * (i % 2));
  }
  return raw;
}

__device__ __forceinline__ void decode(const Raw& raw, DType dtype, float (&x)[kPiece]) {
  if (dtype == DType::f32) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) x[i] = __uint_as_float(raw.word[i]);
    return;
  }
  const float2 low = pair_of(raw.word[0], dtype);
  const float2 high = pair_of(raw.word[1], dtype);
  x[0] = low.x;
  x[1] = low.y;
  x[2] = high.x;
  x[3] = high.y;
}

__device__ __forceinline__ void read(const Span& span, const Piece& piece, float (&x)[kPiece]) {
  decode(fetch(span, piece), span.dtype, x);
}

__device__ __forceinline__ void write(const Span& span, const Piece& piece, const float (&x)[kPiece]) {
  if (!piece.whole) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i < piece.count) write_one(span, piece.first + i, x[i]);
    }
  } else if (span.dtype == DType::f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(span.data) + piece.first) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
    *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(span.data) + piece.first) =
        make_uint2(word_of(x[0], x[1], span.dtype), word_of(x[2], x[3], span.dtype));
  }
}

// kCount elements (a multiple of four, as is `first`) of a small operand of any type, which stays in the caches.
template <int kCount>
__device__ __forceinline__ void read_small(const Span& span, std::int64_t first, float (&x)[kCount]) {
#pragma unroll
  for (int part = 0; part < kCount; part += kPiece) {
    float four[kPiece];
    read(span, {first + part, kPiece, true}, four);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) x[part + i] = four[i];
  }
}

// ---- 16 bytes of a row

template <typename T>
inline constexpr DType kDTypeOf = DType::f32;
template <>
inline constexpr DType kDTypeOf<__nv_bfloat16> = DType::bf16;
template <>
inline constexpr DType kDTypeOf<__half> = DType::f16;

template <typename T>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(T));  // elements of 16 bytes

template <typename T>
__device__ __forceinline__ void decode_wide(const uint4& raw, float (&x)[kWide<T>]) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 4) {
      x[w] = __uint_as_float(words[w]);
    } else {
      const float2 pair = pair_of(words[w], kDTypeOf<T>);
      x[2 * w] = pair.x;
      x[2 * w + 1] = pair.y;
    }
  }
}

template <typename T>
__device__ __forceinline__ uint4 encode_wide(const float (&x)[kWide<T>]) {
  std::uint32_t words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 4) {
      words[w] = __float_as_uint(x[w]);
    } else {
      words[w] = word_of(x[2 * w], x[2 * w + 1], kDTypeOf<T>);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// ---- launches over pieces

// One thread takes kPieces pieces, a block apart, so that each access of a block is contiguous.
inline constexpr int kMapThreads = 256;
inline constexpr int kMapPieces = 2;

// Calls map(piece_0), map(piece_1) .. of one thread; Map is a struct of operands with `fetch(piece)` giving what it read and
// `finish(piece, fetched)`.
template <typename Map>
__global__ void __launch_bounds__(kMapThreads) map_pieces(Map map, std::int64_t elements, bool aligned) {
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * kMapThreads * kMapPieces * kPiece;
  Piece pieces[kMapPieces];
  decltype(map.fetch(Piece{})) fetched[kMapPieces];
#pragma unroll
  for (int k = 0; k < kMapPieces; ++k) {
    pieces[k] = piece_at(base + (k * kMapThreads + static_cast<int>(threadIdx.x)) * kPiece, elements, aligned);
    fetched[k] = map.fetch(pieces[k]);
  }
#pragma unroll
  for (int k = 0; k < kMapPieces; ++k) {
    if (pieces[k].count > 0) map.finish(pieces[k], fetched[k]);
  }
}

template <typename Map>
void launch_map(const Map& map, std::int64_t elements, bool aligned, cudaStream_t stream) {
  if (elements == 0) return;
  map_pieces<<<blocks_for(elements, kMapThreads * kMapPieces * kPiece), kMapThreads, 0, stream>>>(map, elements, aligned);
}

}  // namespace plimsoll::kernels::cuda

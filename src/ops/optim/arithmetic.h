// What update rules are written with: operations that round once, so that a rule gives the same bits on the processor, on the host beside a
// GPU and on the GPU. A compiler may otherwise fuse a product and a sum into one rounding, on one machine and not on another.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"

namespace plimsoll::ops {

#if defined(__CUDA_ARCH__)

__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float over(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline float root(float a) { return __fsqrt_rn(a); }
__device__ inline float times_plus(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double times(double a, double b) { return __dmul_rn(a, b); }
__device__ inline double plus(double a, double b) { return __dadd_rn(a, b); }

#else

// GCC fuses what it inlines, clang only what stands in one expression.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define PLIMSOLL_ROUNDED(value) __builtin_assoc_barrier(value)
#else
#define PLIMSOLL_ROUNDED(value) (value)
#endif
inline float times(float a, float b) { return PLIMSOLL_ROUNDED(a * b); }
inline float plus(float a, float b) { return PLIMSOLL_ROUNDED(a + b); }
inline float over(float a, float b) { return a / b; }
inline float root(float a) { return __builtin_sqrtf(a); }
inline float times_plus(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double times(double a, double b) { return PLIMSOLL_ROUNDED(a * b); }
inline double plus(double a, double b) { return PLIMSOLL_ROUNDED(a + b); }
#undef PLIMSOLL_ROUNDED
// Of the reference, which no other machine must repeat.
inline double over(double a, double b) { return a / b; }
inline double root(double a) { return std::sqrt(a); }
inline double times_plus(double a, double b, double c) { return a * b + c; }

#endif

// -1, 0 or 1; 0 of a NaN.
template <typename T>
PLIMSOLL_HOST_DEVICE inline T sign_of(T a) {
  return static_cast<T>(a > T(0)) - static_cast<T>(a < T(0));
}

// The larger of two, and the smaller.
template <typename T>
PLIMSOLL_HOST_DEVICE inline T larger(T a, T b) {
  return a < b ? b : a;
}
template <typename T>
PLIMSOLL_HOST_DEVICE inline T smaller(T a, T b) {
  return b < a ? b : a;
}

// By squaring, not by the library's pow, of which every library has its own.
PLIMSOLL_HOST_DEVICE inline double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = times(result, base);
    base = times(base, base);
  }
  return result;
}

}  // namespace plimsoll::ops

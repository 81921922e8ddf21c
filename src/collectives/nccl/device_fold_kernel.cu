#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "collectives/nccl/device_fold_kernel.h"

namespace plimsoll::collectives::nccl {

namespace {

struct F32 {
  using Stored = float;
  using Wide = float;
  static __device__ float load(float value) { return value; }
  static __device__ float store(float value) { return value; }
  static __device__ float larger(float a, float b) { return b > a || b != b ? b : a; }
};
struct Bf16 : F32 {
  using Stored = __nv_bfloat16;
  static __device__ float load(Stored value) { return __bfloat162float(value); }
  static __device__ Stored store(float value) { return __float2bfloat16_rn(value); }
};
struct F16 : F32 {
  using Stored = __half;
  static __device__ float load(Stored value) { return __half2float(value); }
  static __device__ Stored store(float value) { return __float2half_rn(value); }
};
// Sums wrap: unsigned; the larger is that of the signed.
template <typename Number, typename Unsigned>
struct Whole {
  using Stored = Unsigned;
  using Wide = Unsigned;
  static __device__ Unsigned load(Unsigned value) { return value; }
  static __device__ Unsigned store(Unsigned value) { return value; }
  static __device__ Unsigned larger(Unsigned a, Unsigned b) { return static_cast<Number>(b) > static_cast<Number>(a) ? b : a; }
};

__device__ float scaled(float value, float inverse) { return __fmul_rn(value, inverse); }
template <typename Whole>
__device__ Whole scaled(Whole value, float) {
  return value;
}
__device__ float added(float a, float b) { return __fadd_rn(a, b); }
template <typename Whole>
__device__ Whole added(Whole a, Whole b) {
  return static_cast<Whole>(a + b);
}

template <typename Type>
__global__ void fold_kernel(FoldRule rule, const void* const* in, int inputs, void* out, long long count, float inverse) {
  using Stored = typename Type::Stored;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    auto sum = Type::load(static_cast<const Stored*>(in[0])[i]);
    for (int k = 1; k < inputs; ++k) {
      const auto next = Type::load(static_cast<const Stored*>(in[k])[i]);
      sum = rule == FoldRule::max ? Type::larger(sum, next) : added(sum, next);
    }
    if (rule == FoldRule::mean) sum = scaled(sum, inverse);
    static_cast<Stored*>(out)[i] = Type::store(sum);
  }
}

template <typename Type>
cudaError_t launch(FoldRule rule, const void* const* in, int inputs, void* out, long long count, float inverse, cudaStream_t stream) {
  constexpr int kThreads = 256;
  constexpr long long kBlocks = 4096;
  const long long wanted = (count + kThreads - 1) / kThreads;
  const int blocks = static_cast<int>(wanted < kBlocks ? wanted : kBlocks);
  if (count > 0) fold_kernel<Type><<<blocks, kThreads, 0, stream>>>(rule, in, inputs, out, count, inverse);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_fold(FoldType type, FoldRule rule, const void* const* in, int inputs, void* out, long long count, float inverse,
                        cudaStream_t stream) {
  switch (type) {
    case FoldType::f32: return launch<F32>(rule, in, inputs, out, count, inverse, stream);
    case FoldType::bf16: return launch<Bf16>(rule, in, inputs, out, count, inverse, stream);
    case FoldType::f16: return launch<F16>(rule, in, inputs, out, count, inverse, stream);
    case FoldType::i32: return launch<Whole<int, unsigned>>(rule, in, inputs, out, count, inverse, stream);
    case FoldType::i64: return launch<Whole<long long, unsigned long long>>(rule, in, inputs, out, count, inverse, stream);
    default: return launch<Whole<unsigned char, unsigned char>>(rule, in, inputs, out, count, inverse, stream);
  }
}

}  // namespace plimsoll::collectives::nccl

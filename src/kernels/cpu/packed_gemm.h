// Matrix multiplication with everything that surrounds it in a transformer done on the way: operands of any element
// type are widened while they are packed, and bias, accumulation, activation and rounding happen on a tile that is
// still in the first-level cache. Sums are f32 and every result is rounded once.
//
// Blocking, from outside in (the words of packed_gemm.cpp): k is cut into passes; in a pass, a *panel* of B and a
// *block* of A are packed into slivers as wide as the register tile; the *tile* of C is computed from one sliver of
// each. Results do not depend on the number of threads: threads share tiles out, never sums.
//
// Beside oneDNN because its sgemm allocates behind our back and its matmul primitive, which does not, is 3 to 20%
// slower than this on training shapes; and because no library widens 16-bit operands on CPUs without bf16 arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/attributes.h"

namespace plimsoll::kernels::cpu {

// Element (i, j) lies at data[i * stride + j]; transposed, at data[j * stride + i].
struct MatrixView {
  const void* data = nullptr;
  base::DType dtype = base::DType::f32;
  std::int64_t stride = 0;
  bool transposed = false;
};

// c = a b + [c] + [bias]; with an activation, activated = activation(c).
struct PackedGemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  MatrixView a{};     // (m, k)
  MatrixView b{};     // (k, n)
  void* c = nullptr;  // (m, n), not transposed
  base::DType c_dtype = base::DType::f32;
  std::int64_t c_stride = 0;
  bool accumulate = false;
  const void* bias = nullptr;  // (optional) (n)
  base::DType bias_dtype = base::DType::f32;
  ops::ActivationKind activation = ops::ActivationKind::none;
  void* activated = nullptr;  // like c; required with an activation
};

struct GemmSize {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  base::DType c_dtype = base::DType::f32;
};

// Bytes of scratch for these sizes, whatever else the multiplication does. The same on every machine.
std::int64_t packed_gemm_workspace(const GemmSize& size, int threads);

// workspace is 64-byte aligned.
void packed_gemm(const PackedGemm& gemm, std::byte* workspace, int threads);

}  // namespace plimsoll::kernels::cpu

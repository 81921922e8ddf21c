// A matrix product by cuBLASLt, settled once for its sizes, so that launching it takes no decision and no other memory than its
// workspace. Its algorithm is the first that the library proposes, or the fastest of its proposals as measured here, which may
// be another in the next run: the former is for runs that must have the same bits.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace plimsoll::kernels::cuda {

// c (m, n) = a (m, k) b (k, n) + [c before], row-major, with f32 sums. A transposed operand lies in memory as its transpose.
// Leading dimensions are those of the rows in memory.
struct LtProblem {
  enum class Epilogue : std::uint8_t {
    none,
    bias,       // + bias (n)
    gelu,       // pre = a b; c = gelu_tanh(pre)
    gelu_bias,  // pre = a b + bias; c = gelu_tanh(pre)
    dgelu,      // c = a b * gelu_tanh'(pre)
  };

  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  std::int64_t a_stride = 0;  // elements between rows in memory
  std::int64_t b_stride = 0;
  std::int64_t c_stride = 0;
  base::DType operands = base::DType::bf16;
  std::optional<base::DType> second = {};  // of b, where it is another: 8-bit operands come in two types
  base::DType result = base::DType::bf16;
  bool accumulate = false;
  Epilogue epilogue = Epilogue::none;

  // 8-bit operands have scales that the product is multiplied by.
  bool scaled() const { return base::size_of(operands) == 1; }
  // As a key of what has been measured.
  std::string text() const;
  // What the plan sets aside for it.
  std::int64_t workspace() const;
};

struct LtOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* present = nullptr;  // with accumulate: what is added to
  void* c = nullptr;
  const void* bias = nullptr;  // bf16 where operands are 8-bit, else of the result's type
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  void* pre = nullptr;
  std::byte* workspace = nullptr;
};

enum class LtChoice : std::uint8_t { first, fastest };

// What was measured so far, here or in earlier runs, a line for each kind of GPU, version of the library and product; and the way to
// bring such lines along, whatever they hold: bad ones are passed over.
std::string measured_products();
void remember_products(std::string_view lines);

class LtGemm {
 public:
  // Takes the device. bad_input when cuBLASLt has no algorithm for it.
  LtGemm(const LtProblem& problem, LtChoice choice);

  void launch(const LtOperands& operands, cudaStream_t stream) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace plimsoll::kernels::cuda

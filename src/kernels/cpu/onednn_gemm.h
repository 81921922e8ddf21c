// A bf16 matrix multiplication by oneDNN, for CPUs that multiply bf16 themselves (AVX-512 BF16, AMX): twice the f32 rate
// and more. Settled once for its sizes, so that running it takes no other memory than its workspace (and oneDNN's own
// few hundred bytes of handles).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace plimsoll::kernels::cpu {

// c (m, n) = a (m, k) b (k, n) + [c] + [bias (n)], a and b in bf16. A transposed operand lies in memory as its
// transpose. Rows follow each other without gaps: oneDNN's fast form wants them so.
struct OnednnGemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  base::DType c_dtype = base::DType::bf16;
  bool accumulate = false;
  std::optional<base::DType> bias = std::nullopt;
};

class OnednnMatmul {
 public:
  OnednnMatmul(const OnednnGemm& gemm, int threads);

  std::int64_t workspace() const;
  // Why it should not be used: the instruction set in use (base/processor.h) has no bf16, or oneDNN has no fast form for
  // these sizes. nullopt: use it.
  std::optional<std::string> refusal() const;
  // Compiles it; required before run.
  void prepare();
  void run(const void* a, const void* b, const void* bias, void* c, std::byte* workspace) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace plimsoll::kernels::cpu

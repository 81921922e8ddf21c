// Attention as it is written in a textbook, in double, with the whole T x T matrix: what the kernels are tested against.
// It reads and writes the operands of the operator, already widened to double.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"

namespace plimsoll::test {

struct AttentionCase {
  ops::Attention attention;
  std::int64_t batch = 1;
  std::int64_t length = 1;
  std::uint64_t seed = 1;              // of the data, and of dropout
  std::vector<std::int32_t> segments;  // (B, T) or empty
  std::vector<std::int32_t> samples;   // (B)
  std::uint32_t step = 0;
};

struct NaiveForward {
  std::vector<double> out;  // (B, T, H*D)
  std::vector<double> lse;  // (B, H, T)
};

NaiveForward naive_attention(const AttentionCase& work, const std::vector<double>& packed);

// `out` is an operand of its own: in a narrow element type it is not what naive_attention returns.
std::vector<double> naive_attention_grad(const AttentionCase& work, const std::vector<double>& dout, const std::vector<double>& packed,
                                         const std::vector<double>& out);

}  // namespace plimsoll::test

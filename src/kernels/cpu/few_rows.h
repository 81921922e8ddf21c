// y = x w^T for a few rows of x, as when text is generated token by token: the weight goes through the registers once,
// as fast as memory gives it, where packing it would cost more than the multiplication.
#pragma once

#include <cstdint>

#include "kernels/cpu/packed_gemm.h"

namespace plimsoll::kernels::cpu {

inline constexpr std::int64_t kFewRows = 8;

std::int64_t few_rows_workspace(const GemmSize& size);

// gemm.m <= kFewRows, a not transposed, b transposed, nothing accumulated.
void few_rows_gemm(const PackedGemm& gemm, std::byte* workspace, int threads);

}  // namespace plimsoll::kernels::cpu

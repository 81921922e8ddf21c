// Hands the instruction set that was found (base/processor.h) to the libraries that would otherwise look for themselves: Highway, which
// kernels are written in, and oneDNN.
#pragma once

namespace plimsoll::kernels::cpu {

// Call before the first kernel runs; the kernel table does. Refuses what base::require_supported refuses.
void settle_isa();

// oneDNN's part of it (onednn_gemm.cpp, onednn_missing.cpp).
void settle_onednn_isa();

}  // namespace plimsoll::kernels::cpu

// Why a kernel does not take a query: reasons that many share.
#pragma once

#include <optional>
#include <string>

#include "ops/kernel_choice.h"

namespace plimsoll::kernels::cuda {

// Refuses queries with a float operand that is not f32, bf16 or f16.
std::optional<std::string> refuse_other_floats(const ops::KernelQuery& query);

// The same, and operands shaped like the first must be of its type: row kernels are made for one type of activations. Weights,
// statistics and the gradients of weights may differ.
std::optional<std::string> refuse_mixed_rows(const ops::KernelQuery& query);

}  // namespace plimsoll::kernels::cuda

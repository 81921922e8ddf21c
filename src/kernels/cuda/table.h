// The ordered table of CUDA kernels, and the choice among them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/cuda/kernel.h"

namespace plimsoll::kernels::cuda {

// All kernels: within an operator fastest first, the one that takes everything last.
const std::vector<Kernel>& kernels();

// The kernel of that name; stops if there is none (plans are checked when they are read).
const Kernel& kernel_named(std::string_view name);

// The first kernel that takes the query.
ops::KernelChoice choose(const ops::KernelQuery& query);

// What each family offers, in order of preference. Defined in the file of the family.
std::span<const Kernel> plain_linear_kernels();  // plain_linear.cu: linear and its gradients, any shape

}  // namespace plimsoll::kernels::cuda

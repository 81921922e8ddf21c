// RMS normalisation of every query and key head of packed rows; listed with the other norms in norm.cpp.
#pragma once

#include <cstdint>

#include "kernels/cpu/kernel.h"

namespace plimsoll::kernels::cpu {

std::int64_t qk_norm_workspace(const ops::KernelQuery& query);
void run_qk_norm(const Call& call);
std::int64_t qk_norm_grad_workspace(const ops::KernelQuery& query);
void run_qk_norm_grad(const Call& call);

}  // namespace plimsoll::kernels::cpu

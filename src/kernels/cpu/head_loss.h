// head_loss: logits, losses and their gradients in one pass, without ever storing all logits. Used by loss.cpp's table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cpu/kernel.h"

namespace plimsoll::kernels::cpu {

// By packed GEMM: every element type.
std::int64_t head_workspace(const ops::KernelQuery& query);
void run_head_loss(const Call& call);

// By oneDNN: bf16, on CPUs with bf16 arithmetic. The gradient of the logits is rounded to bf16.
std::optional<std::string> refuse_onednn_head(const ops::KernelQuery& query);
std::int64_t onednn_head_workspace(const ops::KernelQuery& query);
Prepared prepare_onednn_head(const ops::KernelQuery& query);
void run_onednn_head(const Call& call);

}  // namespace plimsoll::kernels::cpu

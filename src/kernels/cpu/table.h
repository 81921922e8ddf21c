// The ordered table of CPU kernels, and the choice among them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/cpu/kernel.h"

namespace plimsoll::kernels::cpu {

// All kernels: within an operator fastest first, the reference last.
const std::vector<Kernel>& kernels();

// The kernel of that name; stops if there is none (plans are checked when they are read).
const Kernel& kernel_named(std::string_view name);

// The first kernel that takes the query.
ops::KernelChoice choose(const ops::KernelQuery& query);

// What each family offers, in order of preference. Defined in the file of the family.
std::span<const Kernel> linear_kernels();            // linear.cpp: linear and its gradients
std::span<const Kernel> loss_kernels();              // loss.cpp: cross_entropy, cross_entropy_grad, head_loss
std::span<const Kernel> norm_kernels();              // norm.cpp: norm, norm_grad, qk_norm, qk_norm_grad
std::span<const Kernel> norm_second_kernels();       // norm_second.cpp: norm_grad_grad, qk_norm_grad_grad
std::span<const Kernel> elementwise_kernels();       // elementwise.cpp: add, cast, activation, gate and gradients
std::span<const Kernel> dropout_kernels();           // dropout.cpp: dropout, residual, subtract
std::span<const Kernel> embedding_kernels();         // embedding.cpp
std::span<const Kernel> encode_kernels();            // encode.cpp: encode, decode
std::span<const Kernel> feedback_kernels();          // feedback.cpp: add_error, keep_error, undo_skipped, sum_parts
std::span<const Kernel> rope_kernels();              // rope.cpp
std::span<const Kernel> attention_kernels();         // attention.cpp
std::span<const Kernel> attention_second_kernels();  // attention_second.cpp: attention_grad_grad
std::span<const Kernel> cached_attention_kernels();  // cached_attention.cpp
std::span<const Kernel> merge_attention_kernels();   // merge_attention.cpp: and its gradient
std::span<const Kernel> optimizer_kernels();         // optimizer.cpp: update, its prelude, merge_sums
std::span<const Kernel> orthogonalize_kernels();     // orthogonalize.cpp
std::span<const Kernel> scalar_kernels();            // scalars.cpp: begin_step, sum_loss, squared_norm, prepare_update, finish_step
std::span<const Kernel> stateful_kernels();          // stateful.cpp: running_mean, round_with_error
std::span<const Kernel> reference_kernels();         // reference/: every operator, in double, for every element type

}  // namespace plimsoll::kernels::cpu

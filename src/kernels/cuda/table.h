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
std::span<const Kernel> bias_grad_kernels();        // column_sums.cu
std::span<const Kernel> dropout_kernels();          // dropout.cu: dropout, residual, subtract
std::span<const Kernel> elementwise_kernels();      // elementwise.cu: add, cast, pad, accumulate, activation, gate and gradients
std::span<const Kernel> embedding_kernels();        // embedding.cu: embed, embed_grad, shift_ids
std::span<const Kernel> encode_kernels();           // encode.cu: encode, decode
std::span<const Kernel> feedback_kernels();         // feedback.cu: add_error, keep_error, undo_skipped, sum_parts
std::span<const Kernel> loss_kernels();             // loss.cu: cross_entropy, its parts and its gradient
std::span<const Kernel> norm_kernels();             // norm.cu
std::span<const Kernel> norm_grad_kernels();        // norm_grad.cu
std::span<const Kernel> orthogonalize_kernels();    // orthogonalize.cu
std::span<const Kernel> optimizer_kernels();        // optimizer.cu: update
std::span<const Kernel> qk_norm_kernels();          // qk_norm.cu: qk_norm, qk_norm_grad
std::span<const Kernel> rope_kernels();             // rope.cu
std::span<const Kernel> scalar_kernels();           // scalars.cu: sums, and the operators on the step scalars
std::span<const Kernel> linear_kernels();           // linear.cpp: linear and its gradients by cuBLASLt
std::span<const Kernel> quantize_kernels();         // quantize.cu: quantize, note_amax
std::span<const Kernel> scaled_linear_kernels();    // scaled_linear.cpp: products of 8-bit operands
std::span<const Kernel> stateful_kernels();         // stateful.cu: running_mean, round_with_error
std::span<const Kernel> plain_linear_kernels();     // plain_linear.cu: the same, any shape
std::span<const Kernel> head_loss_kernels();        // head_loss.cpp
std::span<const Kernel> cudnn_attention_kernels();  // cudnn_attention.cpp, or none: attention and its gradient
std::span<const Kernel> mma_attention_kernels();    // mma_attention.cu: attention and its gradient, on tensor cores
std::span<const Kernel> tiled_attention_kernels();  // tiled_attention.cu: attention and its gradient, in f32 arithmetic
std::span<const Kernel> plain_attention_kernels();  // plain_attention.cu: attention, its gradient, cached_attention
std::span<const Kernel> merge_attention_kernels();  // merge_attention.cu: and its gradient

}  // namespace plimsoll::kernels::cuda

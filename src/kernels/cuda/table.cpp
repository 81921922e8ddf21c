#include "kernels/cuda/table.h"

#include "ops/kernel_table.h"

namespace plimsoll::kernels::cuda {

namespace {

// The executor makes zeros of the rows that hold nothing (live_rows.h), so kernels need not know of them.
std::optional<std::string> refuse_bounded(const Kernel&) { return std::nullopt; }

const ops::KernelTable<Kernel>& table() {
  static const ops::KernelTable<Kernel> once("CUDA", refuse_bounded, {linear_kernels,          plain_linear_kernels,
                                                                      head_loss_kernels,       cudnn_attention_kernels,
                                                                      mma_attention_kernels,   tiled_attention_kernels,
                                                                      plain_attention_kernels, bias_grad_kernels,
                                                                      dropout_kernels,         elementwise_kernels,
                                                                      embedding_kernels,       encode_kernels,
                                                                      feedback_kernels,        loss_kernels,
                                                                      merge_attention_kernels, norm_kernels,
                                                                      norm_grad_kernels,       optimizer_kernels,
                                                                      orthogonalize_kernels,   qk_norm_kernels,
                                                                      quantize_kernels,        rope_kernels,
                                                                      scalar_kernels,          scaled_linear_kernels,
                                                                      stateful_kernels});
  return once;
}

}  // namespace

const std::vector<Kernel>& kernels() { return table().all(); }

const Kernel& kernel_named(std::string_view name) { return table().named(name); }

ops::KernelChoice choose(const ops::KernelQuery& query) { return table().choose(query); }

}  // namespace plimsoll::kernels::cuda

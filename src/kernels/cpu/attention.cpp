// Attention and its gradient by tiles: no T x T matrix exists, scratch grows with the threads and (for the gradient) with
// T, never with T^2. Scores, softmax and sums are f32 whatever the element type. Split over: attention_problem (who sees
// whom), attention_forward, attention_backward (loops over tiles), attention_tiles (arithmetic on tiles).
#include <array>

#include "kernels/cpu/attention_problem.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/table.h"

namespace plimsoll::kernels::cpu {

namespace {

std::optional<std::string> refuse_unless_floats(ops::Types tensors) {
  for (const base::TensorType& type : tensors) {
    if (!is_element(type.dtype)) return fmt::format("takes f32, bf16 and f16, not {}", base::to_string(type));
  }
  return std::nullopt;
}

std::optional<std::string> attention_refusal(const ops::KernelQuery& query) {
  const std::array tensors{query.inputs[0], query.outputs[0]};
  return refuse_unless_floats(tensors);
}

std::int64_t attention_workspace(const ops::KernelQuery& query) {
  return attention::forward_workspace(std::get<ops::Attention>(query.op), query.threads);
}

void run_attention(const Call& call) { attention::run_forward(std::get<ops::Attention>(call.op), call); }

std::optional<std::string> attention_grad_refusal(const ops::KernelQuery& query) {
  const auto& grad = std::get<ops::AttentionGrad>(query.op);
  if (const auto refusal = refuse_unless_floats(query.inputs.first(grad.out_operand() + 1))) return refusal;
  return refuse_unless_floats(query.outputs);
}

std::int64_t attention_grad_workspace(const ops::KernelQuery& query) {
  const ops::Attention& forward = std::get<ops::AttentionGrad>(query.op).forward;
  const base::Shape& keys = query.inputs[1 + forward.key_operand()].shape;
  return attention::backward_workspace(forward, keys[0], keys[1], query.threads);
}

void run_attention_grad(const Call& call) { attention::run_backward(std::get<ops::AttentionGrad>(call.op), call); }

constexpr std::array kKernels{
    Kernel{.op = ops::Attention::kName,
           .name = "attention.tiled",
           .refusal = attention_refusal,
           .workspace = attention_workspace,
           .run = run_attention},
    Kernel{.op = ops::AttentionGrad::kName,
           .name = "attention_grad.tiled",
           .refusal = attention_grad_refusal,
           .workspace = attention_grad_workspace,
           .run = run_attention_grad},
};

}  // namespace

std::span<const Kernel> attention_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu

// What other tools write for the values of settings.
#include <algorithm>

#include "config/other_names.h"

namespace plimsoll::config {

namespace {

struct OtherValue {
  std::string_view key;
  std::string_view value;
  std::string_view ours;
};

constexpr OtherValue kValues[] = {
    {"precision", "bfloat16", "bf16"},
    {"precision", "torch.bfloat16", "bf16"},
    {"precision", "bf16-mixed", "bf16"},
    {"precision", "float16", "fp16"},
    {"precision", "torch.float16", "fp16"},
    {"precision", "16-mixed", "fp16"},
    {"precision", "f16", "fp16"},
    {"precision", "half", "fp16"},
    {"precision", "float32", "f32"},
    {"precision", "torch.float32", "f32"},
    {"precision", "float", "f32"},
    {"precision", "fp32", "f32"},
    {"precision", "tf32", "f32"},
    {"precision", "no", "f32"},
    {"precision", "float8", "fp8"},
    {"optimizer.type", "adamw_torch", "adamw"},
    {"optimizer.type", "adamw_torch_fused", "adamw"},
    {"optimizer.type", "adamw_hf", "adamw"},
    {"optimizer.type", "fused_adam", "adamw"},
    {"optimizer.type", "FusedAdam", "adamw"},
    {"optimizer.type", "sgd_momentum", "momentum"},
    {"lr_schedule.type", "constant_with_warmup", "constant"},
    {"lr_schedule.type", "cosine_with_min_lr", "cosine"},
    {"lr_schedule.type", "cosine_annealing", "cosine"},
    {"lr_schedule.type", "cosine_with_warmup", "cosine"},
    {"lr_schedule.type", "linear_with_warmup", "linear"},
    {"lr_schedule.type", "warmup_stable_decay", "wsd"},
    {"lr_schedule.type", "trapezoidal", "wsd"},
    {"device", "gpu", "cuda"},
    {"device", "cuda:0", "cuda"},
    {"device", "nvidia", "cuda"},
    {"transport", "gloo", "local"},
    {"transport", "threads", "local"},
    {"strategy.recompute", "all", "full"},
    {"strategy.recompute", "block", "full"},
    {"strategy.recompute", "uniform", "full"},
    {"strategy.schedule", "one_f_one_b", "1f1b"},
    {"strategy.schedule", "interleaved_1f1b", "interleaved"},
    {"strategy.schedule", "Interleaved1F1B", "interleaved"},
    {"strategy.schedule", "ZBVZeroBubble", "zb-h1"},
    {"strategy.schedule", "zero_bubble", "zb-h1"},
    {"strategy.offload.optimizer", "cpu", "host"},
    {"strategy.offload.optimizer", "nvme", "disk"},
    {"strategy.offload.params", "cpu", "host"},
    {"strategy.offload.params", "nvme", "disk"},
    {"strategy.offload.gradients", "cpu", "host"},
    {"strategy.offload.gradients", "nvme", "disk"},
    {"strategy.offload.activations", "cpu", "host"},
    {"strategy.offload.activations", "nvme", "disk"},
    {"model.family", "gpt", "gpt2"},
    {"model.family", "gpt-2", "gpt2"},
    {"model.family", "mistral", "llama"},
    {"model.family", "qwen2", "llama"},
    {"model.family", "qwen3", "llama"},
    {"model.activation", "gelu", "gelu_erf"},
    {"model.activation", "gelu_new", "gelu_tanh"},
    {"model.activation", "gelu_pytorch_tanh", "gelu_tanh"},
    {"model.activation", "swish", "silu"},
    {"model.activation", "swiglu", "silu"},
    {"model.rope.scaling", "default", "none"},
};

}  // namespace

std::string_view find_other_value(std::string_view key, std::string_view value) {
  const auto found = std::find_if(std::begin(kValues), std::end(kValues),
                                  [&](const OtherValue& other) { return other.key == key && other.value == value; });
  return found == std::end(kValues) ? std::string_view() : found->ours;
}

}  // namespace plimsoll::config

#include "kernels/cuda/table.h"

#include <unordered_map>

#include "base/error.h"

namespace plimsoll::kernels::cuda {

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> table = [] {
    std::vector<Kernel> all;
    for (const auto family : {linear_kernels, plain_linear_kernels, head_loss_kernels, cudnn_attention_kernels, plain_attention_kernels,
                              bias_grad_kernels, dropout_kernels, elementwise_kernels, embedding_kernels, loss_kernels, norm_kernels,
                              norm_grad_kernels, optimizer_kernels, qk_norm_kernels, rope_kernels, scalar_kernels}) {
      const std::span<const Kernel> rows = family();
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }();
  return table;
}

const Kernel& kernel_named(std::string_view name) {
  static const std::unordered_map<std::string_view, const Kernel*> by_name = [] {
    std::unordered_map<std::string_view, const Kernel*> index;
    for (const Kernel& kernel : kernels()) {
      const bool fresh = index.emplace(kernel.name, &kernel).second;
      PLIMSOLL_CHECK(fresh, "two CUDA kernels are called {}", kernel.name);
    }
    return index;
  }();
  const auto found = by_name.find(name);
  PLIMSOLL_CHECK(found != by_name.end(), "there is no CUDA kernel {}", name);
  return *found->second;
}

ops::KernelChoice choose(const ops::KernelQuery& query) {
  std::string reasons;
  const std::string_view op = ops::name_of(query.op);
  for (const Kernel& kernel : kernels()) {
    if (kernel.op != op) continue;
    const std::optional<std::string> refusal = kernel.refusal ? kernel.refusal(query) : std::nullopt;
    if (!refusal) return {std::string(kernel.name), kernel.workspace ? kernel.workspace(query) : 0};
    reasons += fmt::format("; {}: {}", kernel.name, *refusal);
  }
  base::not_legal("[{}] no CUDA kernel takes {}{}", op, ops::to_string(query.op), reasons);
}

}  // namespace plimsoll::kernels::cuda

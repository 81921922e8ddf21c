#include "kernels/cpu/table.h"

#include "kernels/cpu/isa.h"
#include "ops/kernel_table.h"

namespace plimsoll::kernels::cpu {

namespace {

// The executor hands kernels the rows there are, so they need not know of others.
std::optional<std::string> refuse_bounded(const Kernel& kernel) {
  if (kernel.prepare == nullptr) return std::nullopt;
  return "it is prepared for one number of rows";
}

const ops::KernelTable<Kernel>& table() {
  settle_isa();
  static const ops::KernelTable<Kernel> once(
      "CPU", refuse_bounded,
      {linear_kernels, loss_kernels, norm_kernels, norm_second_kernels, elementwise_kernels, dropout_kernels, embedding_kernels,
       encode_kernels, feedback_kernels, rope_kernels, attention_kernels, attention_second_kernels, cached_attention_kernels,
       merge_attention_kernels, optimizer_kernels, orthogonalize_kernels, scalar_kernels, stateful_kernels, reference_kernels});
  return once;
}

}  // namespace

const std::vector<Kernel>& kernels() { return table().all(); }

const Kernel& kernel_named(std::string_view name) { return table().named(name); }

ops::KernelChoice choose(const ops::KernelQuery& query) { return table().choose(query); }

}  // namespace plimsoll::kernels::cpu

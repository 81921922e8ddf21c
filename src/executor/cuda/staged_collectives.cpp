#include "executor/cuda/staged_collectives.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/checks.h"

namespace plimsoll::executor {

using kernels::cuda::check;

namespace {

std::size_t largest_operand(const plan::Plan& plan) {
  std::int64_t largest = 0;
  for (const plan::Procedure& procedure : plan.procedures) {
    for (const plan::Instruction& instruction : procedure.instructions) {
      const auto* collective = std::get_if<plan::Collective>(&instruction);
      if (collective == nullptr) continue;
      for (const auto* operands : {&collective->inputs, &collective->outputs}) {
        for (const plan::Operand& operand : *operands) largest = std::max(largest, operand.type.bytes());
      }
    }
  }
  return static_cast<std::size_t>(largest);
}

}  // namespace

StagedCollectives::StagedCollectives(const plan::Plan& plan, std::int32_t rank, int device, collectives::Transport* transport) {
  PLIMSOLL_CHECK(plan.mesh.ranks() == (transport == nullptr ? 1 : transport->size()), "a plan for {} ranks on a transport of {}",
                 plan.mesh.ranks(), transport == nullptr ? 1 : transport->size());
  in_.resize(largest_operand(plan));
  out_.resize(in_.size());
  for (ops::Axis axis : {ops::Axis::data, ops::Axis::tensor}) {
    if (plan.mesh.extent(axis) == 1) continue;
    const auto index = static_cast<std::size_t>(axis);
    groups_[index] = transport->make_group(plan.mesh.group(axis, rank), std::string(ops::name_of(axis)));
    direct_[index] = DirectExchange::make(*groups_[index], device);
  }
}

void StagedCollectives::run(const ops::Collective& op, const kernels::cuda::Tensor& from, const kernels::cuda::Tensor& to,
                            cudaStream_t stream) {
  const std::unique_ptr<DirectExchange>& direct = direct_[static_cast<std::size_t>(op.axis)];
  if (direct != nullptr && DirectExchange::takes(op, from.type.dtype)) return direct->run(op, from, to, stream);
  collectives::Group& group = *groups_[static_cast<std::size_t>(op.axis)];
  const std::span<std::byte> in(in_.data(), static_cast<std::size_t>(from.type.bytes()));
  const std::span<std::byte> out(out_.data(), static_cast<std::size_t>(to.type.bytes()));
  check(cudaMemcpyAsync(in.data(), from.data, in.size(), cudaMemcpyDeviceToHost, stream), "reading a collective's operand");
  if (op.kind == ops::CollectiveKind::reduce || op.kind == ops::CollectiveKind::broadcast)
    check(cudaMemcpyAsync(out.data(), to.data, out.size(), cudaMemcpyDeviceToHost, stream), "reading a collective's result");
  check(cudaStreamSynchronize(stream), "waiting for a collective's operand");
  const std::int64_t smaller = std::min(from.type.shape.elements(), to.type.shape.elements());
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(op.members), smaller);
  switch (op.kind) {
    case ops::CollectiveKind::all_reduce: group.all_reduce(in, out, from.type.dtype, collectives::Reduction::sum); break;
    case ops::CollectiveKind::reduce_scatter: group.reduce_scatter(in, out, counts, from.type.dtype, collectives::Reduction::sum); break;
    case ops::CollectiveKind::all_gather: group.all_gather(in, out, counts, from.type.dtype); break;
    case ops::CollectiveKind::reduce: group.reduce(in, out, from.type.dtype, collectives::Reduction::sum, 0); break;
    case ops::CollectiveKind::broadcast: group.broadcast(out, to.type.dtype, 0); break;
  }
  check(cudaMemcpyAsync(to.data, out.data(), out.size(), cudaMemcpyHostToDevice, stream), "writing a collective's result");
  check(cudaStreamSynchronize(stream), "writing a collective's result");
}

}  // namespace plimsoll::executor

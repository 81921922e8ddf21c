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

namespace {

void move(collectives::Group& group, const ops::Collective& op, std::span<std::byte> in, std::span<std::byte> out,
          const std::vector<std::int64_t>& counts, base::DType dtype) {
  switch (op.kind) {
    case ops::CollectiveKind::all_reduce: return group.all_reduce(in, out, dtype, collectives::Reduction::sum);
    case ops::CollectiveKind::reduce_scatter: return group.reduce_scatter(in, out, counts, dtype, collectives::Reduction::sum);
    case ops::CollectiveKind::all_gather: return group.all_gather(in, out, counts, dtype);
    case ops::CollectiveKind::reduce: return group.reduce(in, out, dtype, collectives::Reduction::sum, 0);
    case ops::CollectiveKind::broadcast: return group.broadcast(out, dtype, 0);
  }
}

}  // namespace

StagedCollectives::StagedCollectives(const plan::Plan& plan, std::int32_t rank, int device, collectives::Transport* transport) {
  PLIMSOLL_CHECK(plan.mesh.ranks() == (transport == nullptr ? 1 : transport->size()), "a plan for {} ranks on a transport of {}",
                 plan.mesh.ranks(), transport == nullptr ? 1 : transport->size());
  on_device_ = transport != nullptr && transport->takes_device_memory();
  in_.resize(on_device_ ? 0 : largest_operand(plan));
  out_.resize(in_.size());
  for (ops::Axis axis : plan.mesh.axes()) {
    if (!plan.mesh.sits_on(axis, rank)) continue;
    const auto index = static_cast<std::size_t>(axis);
    groups_[index] = transport->make_group(plan.mesh.group(axis, rank), std::string(ops::name_of(axis)));
    if (!on_device_) direct_[index] = DirectExchange::make(*groups_[index], device);
  }
}

void StagedCollectives::run(const ops::Collective& op, const kernels::cuda::Tensor& from, const kernels::cuda::Tensor& to,
                            cudaStream_t stream) {
  const std::unique_ptr<DirectExchange>& direct = direct_[static_cast<std::size_t>(op.axis)];
  if (direct != nullptr && DirectExchange::takes(op, from.type.dtype)) return direct->run(op, from, to, stream);
  collectives::Group& group = *groups_[static_cast<std::size_t>(op.axis)];
  const std::int64_t left_alone = op.first * base::size_of(from.type.dtype);
  const std::vector<std::int64_t> counts = plan::part_counts(op, from.type, to.type);
  if (on_device_) {
    check(cudaStreamSynchronize(stream), "waiting for a collective's operand");
    return move(group, op, {from.as<std::byte>() + left_alone, static_cast<std::size_t>(from.type.bytes() - left_alone)},
                {to.as<std::byte>() + left_alone, static_cast<std::size_t>(to.type.bytes() - left_alone)}, counts, from.type.dtype);
  }
  const std::span<std::byte> in(in_.data(), static_cast<std::size_t>(from.type.bytes() - left_alone));
  const std::span<std::byte> out(out_.data(), static_cast<std::size_t>(to.type.bytes() - left_alone));
  const std::byte* given = from.as<const std::byte>() + left_alone;
  std::byte* made = to.as<std::byte>() + left_alone;
  check(cudaMemcpyAsync(in.data(), given, in.size(), cudaMemcpyDeviceToHost, stream), "reading a collective's operand");
  if (op.kind == ops::CollectiveKind::reduce || op.kind == ops::CollectiveKind::broadcast)
    check(cudaMemcpyAsync(out.data(), made, out.size(), cudaMemcpyDeviceToHost, stream), "reading a collective's result");
  check(cudaStreamSynchronize(stream), "waiting for a collective's operand");
  move(group, op, in, out, counts, from.type.dtype);
  check(cudaMemcpyAsync(made, out.data(), out.size(), cudaMemcpyHostToDevice, stream), "writing a collective's result");
  check(cudaStreamSynchronize(stream), "writing a collective's result");
}

}  // namespace plimsoll::executor

#include "executor/cuda/staged_collectives.h"

#include <algorithm>

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

StagedCollectives::StagedCollectives(const plan::Plan& plan, std::int32_t rank, int device, collectives::Transport* transport)
    : peers_(plan, rank, transport), on_device_(transport != nullptr && transport->takes_device_memory()) {
  if (on_device_) return;
  in_.resize(largest_operand(plan));
  out_.resize(in_.size());
  for (ops::Axis axis : plan.mesh.axes()) {
    if (collectives::Group* group = peers_.group(axis); group != nullptr)
      direct_[static_cast<std::size_t>(axis)] = DirectExchange::make(*group, device);
  }
}

void StagedCollectives::run(const ops::Collective& op, const kernels::cuda::Tensor& from, const kernels::cuda::Tensor& to,
                            cudaStream_t stream) {
  const std::unique_ptr<DirectExchange>& direct = direct_[static_cast<std::size_t>(op.axis)];
  if (direct != nullptr && DirectExchange::takes(op, from.type.dtype)) return direct->run(op, from, to, stream);
  if (on_device_) {
    check(cudaStreamSynchronize(stream), "waiting for a collective's operand");
    return peers_.run(op, {from.as<std::byte>(), from.type}, {to.as<std::byte>(), to.type});
  }
  // What is left alone is not copied either: the host's copies have the same layout with a hole.
  const auto skipped = static_cast<std::size_t>(op.first * base::size_of(from.type.dtype));
  const std::size_t in = static_cast<std::size_t>(from.type.bytes()) - skipped;
  const std::size_t out = static_cast<std::size_t>(to.type.bytes()) - skipped;
  const std::byte* given = from.as<const std::byte>() + skipped;
  std::byte* made = to.as<std::byte>() + skipped;
  check(cudaMemcpyAsync(in_.data() + skipped, given, in, cudaMemcpyDeviceToHost, stream), "reading a collective's operand");
  if (op.kind == ops::CollectiveKind::reduce || op.kind == ops::CollectiveKind::broadcast)
    check(cudaMemcpyAsync(out_.data() + skipped, made, out, cudaMemcpyDeviceToHost, stream), "reading a collective's result");
  check(cudaStreamSynchronize(stream), "waiting for a collective's operand");
  peers_.run(op, {in_.data(), from.type}, {out_.data(), to.type});
  check(cudaMemcpyAsync(made, out_.data() + skipped, out, cudaMemcpyHostToDevice, stream), "writing a collective's result");
  check(cudaStreamSynchronize(stream), "writing a collective's result");
}

}  // namespace plimsoll::executor

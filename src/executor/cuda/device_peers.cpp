#include "executor/cuda/device_peers.h"

#include <algorithm>

#include "kernels/cuda/checks.h"
#include "plan/instructions.h"

namespace plimsoll::executor {

using kernels::cuda::check;

namespace {

std::size_t largest_operand(const plan::Plan& plan) {
  std::int64_t largest = 0;
  const auto look = [&](const auto& moved) {
    for (const auto* operands : {&moved.inputs, &moved.outputs}) {
      for (const plan::Operand& operand : *operands) largest = std::max(largest, operand.type.bytes());
    }
  };
  for (const plan::Procedure& procedure : plan.procedures) {
    for (const plan::Instruction& instruction : procedure.instructions) {
      plan::match(
          instruction, [&](const plan::Collective& collective) { look(collective); }, [&](const plan::Message& message) { look(message); },
          plan::kIgnoreOthers);
    }
  }
  return static_cast<std::size_t>(largest);
}

}  // namespace

DevicePeers::DevicePeers(const plan::Plan& plan, std::int32_t rank, int device, collectives::Transport* transport)
    : peers_(plan, rank, transport),
      on_device_(transport != nullptr && transport->takes_device_memory()),
      largest_(on_device_ ? 0 : largest_operand(plan)) {
  if (on_device_) return;
  for (const ops::Axis& axis : plan.mesh.axes(rank)) {
    if (collectives::Group* group = peers_.group(axis); group != nullptr) direct_[axis] = DirectExchange::make(*group, device);
  }
}

DevicePeers::Staging DevicePeers::make_staging() const { return {std::vector<std::byte>(largest_), std::vector<std::byte>(largest_)}; }

void DevicePeers::run(const ops::Collective& op, const kernels::cuda::Tensor& from, const kernels::cuda::Tensor& to, Staging& staging,
                      cudaStream_t stream) {
  const auto direct = direct_.find(op.axis);
  if (direct != direct_.end() && direct->second != nullptr && DirectExchange::takes(op, from.type.dtype))
    return direct->second->run(op, from, to, stream);
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
  check(cudaMemcpyAsync(staging.in.data() + skipped, given, in, cudaMemcpyDeviceToHost, stream), "reading a collective's operand");
  if (op.kind == ops::CollectiveKind::reduce || op.kind == ops::CollectiveKind::broadcast)
    check(cudaMemcpyAsync(staging.out.data() + skipped, made, out, cudaMemcpyDeviceToHost, stream), "reading a collective's result");
  check(cudaStreamSynchronize(stream), "waiting for a collective's operand");
  peers_.run(op, {staging.in.data(), from.type}, {staging.out.data(), to.type});
  check(cudaMemcpyAsync(made, staging.out.data() + skipped, out, cudaMemcpyHostToDevice, stream), "writing a collective's result");
  check(cudaStreamSynchronize(stream), "writing a collective's result");
}

void DevicePeers::run(const ops::Message& op, std::int32_t micro_batch, const kernels::cuda::Tensor& tensor, Staging& staging,
                      cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(tensor.type.bytes());
  if (on_device_) {
    check(cudaStreamSynchronize(stream), "waiting for a message's memory");
    return peers_.run(op, micro_batch, {tensor.as<std::byte>(), bytes});
  }
  const std::span<std::byte> here = std::span(staging.in).first(bytes);
  if (!op.receive) {
    check(cudaMemcpyAsync(here.data(), tensor.data, bytes, cudaMemcpyDeviceToHost, stream), "reading a message");
    check(cudaStreamSynchronize(stream), "reading a message");
  }
  peers_.run(op, micro_batch, here);
  if (op.receive) {
    check(cudaMemcpyAsync(tensor.data, here.data(), bytes, cudaMemcpyHostToDevice, stream), "writing a message");
    check(cudaStreamSynchronize(stream), "writing a message");
  }
}

}  // namespace plimsoll::executor

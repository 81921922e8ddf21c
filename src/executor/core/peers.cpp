#include "executor/core/peers.h"

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::executor {

Peers::Peers(const plan::Plan& plan, std::int32_t rank, collectives::Transport* transport) : mesh_(plan.mesh), rank_(rank) {
  PLIMSOLL_CHECK(mesh_.ranks() == (transport == nullptr ? 1 : transport->size()), "a plan for {} ranks on a transport of {}", mesh_.ranks(),
                 transport == nullptr ? 1 : transport->size());
  for (const ops::Axis& axis : mesh_.axes(rank)) groups_[axis] = transport->make_group(mesh_.group(axis, rank), std::string(axis.name()));
  // Both ends make their groups in the order of (from, to), so neither waits for the other in vain.
  for (const auto& [from, to] : plan::links_of(plan, rank)) {
    auto& links = from == rank ? sending_ : receiving_;
    std::string name = fmt::format("pipe {} to {}", mesh_.place(ops::Axis::pipe, from), mesh_.place(ops::Axis::pipe, to));
    if (!mesh_.even()) name += fmt::format(", ranks {} to {}", from, to);
    links[from == rank ? to : from] = transport->make_group(std::vector<std::int32_t>{from, to}, name);
  }
}

void Peers::run(const ops::Collective& op, const Tensor& from, const Tensor& to) {
  using collectives::Reduction;
  collectives::Group& group = *groups_.at(op.axis);
  const std::vector<std::int64_t> counts = plan::part_counts(op, from.type, to.type);
  const auto left_alone = static_cast<std::size_t>(op.first * base::size_of(from.type.dtype));
  switch (op.kind) {
    case ops::CollectiveKind::all_reduce:
      group.all_reduce(from.bytes().subspan(left_alone), to.bytes().subspan(left_alone), from.type.dtype, Reduction::sum);
      break;
    case ops::CollectiveKind::reduce_scatter:
      group.reduce_scatter(from.bytes(), to.bytes(), counts, from.type.dtype, Reduction::sum);
      break;
    case ops::CollectiveKind::all_gather: group.all_gather(from.bytes(), to.bytes(), counts, from.type.dtype); break;
    case ops::CollectiveKind::reduce: group.reduce(from.bytes(), to.bytes(), from.type.dtype, Reduction::sum, 0); break;
    case ops::CollectiveKind::broadcast: group.broadcast(to.bytes(), to.type.dtype, 0); break;
    case ops::CollectiveKind::all_to_all: group.all_to_all(from.bytes(), counts, to.bytes(), counts, from.type.dtype); break;
  }
}

// Of a link's two members the first sends.
void Peers::run(const ops::Message& op, std::int32_t micro_batch, std::span<std::byte> data) {
  const int tag = plan::tag_of(op, micro_batch);
  const std::int32_t other = plan::other_end(mesh_, rank_, op, micro_batch);
  if (op.receive) {
    receiving_.at(other)->receive(data, 0, tag);
  } else {
    sending_.at(other)->send(data, 1, tag);
  }
}

}  // namespace plimsoll::executor

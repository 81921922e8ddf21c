#include "executor/sim/meetings.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "plan/instructions.h"

namespace plimsoll::executor::sim {

Meetings::Meetings(const plan::Plan& plan, std::string_view program, const cluster::Cluster& cluster) : plan_(plan), cluster_(cluster) {
  std::size_t listed = 0;
  for (const plan::RankClass& rank_class : plan.classes) listed += rank_class.ranks.size();
  folded_ = plan.mesh.even() && std::cmp_less(listed, plan.mesh.ranks());
  count_users(program);
}

std::vector<std::int32_t> Meetings::ranks_of(const plan::RankClass& rank_class) const {
  if (!folded_) return rank_class.ranks;
  std::vector<std::int32_t> ranks;
  for (const std::int32_t first : rank_class.ranks) {
    for (const std::int32_t rank : plan_.mesh.sharing(ops::Shares::tensors, first)) ranks.push_back(rank);
  }
  return ranks;
}

void Meetings::count_users(std::string_view program_name) {
  for (const plan::RankClass& rank_class : plan_.classes) {
    const plan::Program* program = plan::find_program(rank_class, program_name);
    if (program == nullptr) continue;
    const std::int32_t first = rank_class.ranks.front();
    std::set<std::int32_t> offsets;  // to those that it sends to
    plan::match_all(
        plan_, *program,
        [&](const plan::Call& call, const plan::Message& message) {
          if (!message.op.receive) offsets.insert(other_end(plan_.mesh, first, message.op, call.micro_batch) - first);
        },
        plan::kIgnoreOthers);
    for (const std::int32_t rank : ranks_of(rank_class)) {
      const auto leaves = [&](std::int32_t offset) { return cost::node_of(cluster_, rank) != cost::node_of(cluster_, rank + offset); };
      if (std::any_of(offsets.begin(), offsets.end(), leaves)) ++leaving_[cost::node_of(cluster_, rank)];
    }
  }
}

const Meetings::Axis& Meetings::axis(const ops::Axis& wanted) const {
  const auto [found, fresh] = axes_.try_emplace(wanted);
  Axis& known = found->second;
  if (!fresh) return known;
  const plan::Mesh& mesh = plan_.mesh;
  std::vector<std::vector<std::int32_t>> groups;
  known.group_of.assign(static_cast<std::size_t>(mesh.ranks()), -1);
  for (std::int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    if (!mesh.sits_on(wanted, rank) || known.group_of[static_cast<std::size_t>(rank)] >= 0) continue;
    for (const std::int32_t member : mesh.group(wanted, rank))
      known.group_of[static_cast<std::size_t>(member)] = static_cast<std::int32_t>(groups.size());
    groups.push_back(mesh.group(wanted, rank));
  }
  known.groups = cost::groups_of(cluster_, mesh.ranks(), groups);
  return known;
}

const std::vector<Meetings::Alike>& Meetings::alike(const plan::RankClass& rank_class, const ops::Axis& wanted) const {
  const auto [found, fresh] = alike_.try_emplace({&rank_class, wanted});
  std::vector<Alike>& all = found->second;
  if (!fresh) return all;
  const Axis& on = axis(wanted);
  for (const std::int32_t rank : ranks_of(rank_class)) {
    const std::int32_t index = on.group_of[static_cast<std::size_t>(rank)];
    PLIMSOLL_CHECK(index >= 0, "rank {} meets nobody on axis {}", rank, ops::name_of(wanted));
    const cost::Group& group = on.groups[static_cast<std::size_t>(index)];
    auto known = std::find_if(all.begin(), all.end(), [&](const Alike& each) { return each.group == group; });
    if (known == all.end()) known = all.insert(all.end(), {.group = group});
    ++known->ranks;
  }
  return all;
}

cost::Transfer Meetings::collective(const plan::RankClass& rank_class, const ops::Collective& op, double bytes) const {
  cost::Transfer slowest;
  double inside = 0.0;
  double across = 0.0;
  double ranks = 0.0;
  for (const Alike& each : alike(rank_class, op.axis)) {
    const cost::Transfer transfer = cost::collective(cluster_, op.kind, bytes, each.group);
    if (transfer.seconds >= slowest.seconds) slowest = transfer;
    inside += transfer.inside * static_cast<double>(each.ranks);
    across += transfer.across * static_cast<double>(each.ranks);
    ranks += static_cast<double>(each.ranks);
  }
  slowest.inside = inside / ranks;
  slowest.across = across / ranks;
  return slowest;
}

const Meetings::Leaving& Meetings::leaving(const plan::RankClass& rank_class, std::int32_t offset, bool receive) const {
  const auto [found, fresh] = leaving_of_.try_emplace({&rank_class, offset, receive});
  Leaving& leaving = found->second;
  if (!fresh) return leaving;
  for (const std::int32_t rank : ranks_of(rank_class)) {
    ++leaving.of;
    const std::int64_t here = cost::node_of(cluster_, rank);
    const std::int64_t there = cost::node_of(cluster_, rank + offset);
    if (here == there) continue;
    ++leaving.ranks;
    const auto sharing = leaving_.find(receive ? there : here);
    leaving.users = std::max(leaving.users, sharing == leaving_.end() ? 1 : sharing->second);
  }
  return leaving;
}

cost::Transfer Meetings::message(const plan::RankClass& rank_class, const ops::Message& op, std::int32_t micro_batch, double bytes) const {
  const std::int32_t first = rank_class.ranks.front();
  const Leaving& far = leaving(rank_class, other_end(plan_.mesh, first, op, micro_batch) - first, op.receive);
  const std::int64_t all = std::min<std::int64_t>(cluster_.devices_per_node, plan_.mesh.ranks());
  cost::Transfer transfer = cost::message(cluster_, bytes, far.ranks > 0, far.ranks > 0 ? far.users : all);
  transfer.across = bytes * static_cast<double>(far.ranks) / static_cast<double>(far.of);
  transfer.inside = bytes - transfer.across;
  return transfer;
}

}  // namespace plimsoll::executor::sim

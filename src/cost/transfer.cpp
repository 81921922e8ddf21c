#include "cost/transfer.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace plimsoll::cost {

namespace {

using cluster::Cluster;
using cluster::Link;
using cluster::Reach;
using ops::CollectiveKind;

// A link as one member of a group sees it.
struct Wire {
  double bandwidth = 0.0;
  double latency = 0.0;
};

Wire wire_of(const Cluster& cluster, Reach reach, std::int64_t users) {
  const Link* link = cluster.find(reach);
  if (link == nullptr)
    base::not_legal("the cluster \"{}\" has no link that joins \"{}\", and the strategy needs one", cluster.name, cluster::name_of(reach));
  return {.bandwidth = cluster::bandwidth_for(cluster, *link, users), .latency = cluster::latency_of(cluster, *link)};
}

double steps_of_tree(std::int64_t members) { return static_cast<double>(std::bit_width(static_cast<std::uint64_t>(members - 1))); }

bool adds(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::reduce;
}

// What a member of n sends in the mean, as a multiple of the tensor's bytes: the same by rings and by trees.
double sent_share(CollectiveKind kind, double n) { return (kind == CollectiveKind::all_reduce ? 2.0 : 1.0) * (n - 1.0) / n; }

Transfer over_wire(CollectiveKind kind, double bytes, std::int64_t members, const Wire& wire) {
  const auto n = static_cast<double>(members);
  const double share = sent_share(kind, n);
  const bool rooted = kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast;
  Transfer tree{.form = Form::tree, .latency = steps_of_tree(members) * wire.latency};
  if (kind == CollectiveKind::all_reduce) tree.latency *= 2.0;
  tree.seconds = tree.latency + (rooted ? 1.0 : 2.0) * bytes / wire.bandwidth;
  if (rooted) return tree;
  Transfer ring{.form = Form::ring, .latency = share * n * wire.latency};
  ring.seconds = ring.latency + share * bytes / wire.bandwidth;
  return kind == CollectiveKind::all_reduce && tree.seconds < ring.seconds ? tree : ring;
}

// One ring or tree through all members, neighbours in a node next to each other. A ring has as many ways between nodes as there are
// nodes, each with its share of the bytes; a tree has one fewer, each with all of them.
Transfer flat(const Cluster& cluster, CollectiveKind kind, double bytes, const Group& group) {
  const bool leaves = group.nodes > 1;
  const bool has_neighbours = group.members > group.nodes;
  Wire wire = wire_of(cluster, leaves ? Reach::across : Reach::inside, leaves ? group.leaving : group.users_inside);
  if (leaves) wire.bandwidth *= static_cast<double>(group.per_node);
  if (leaves && has_neighbours) wire.bandwidth = std::min(wire.bandwidth, wire_of(cluster, Reach::inside, group.users_inside).bandwidth);
  Transfer transfer = over_wire(kind, bytes, group.members, wire);
  const auto n = static_cast<double>(group.members);
  const auto nodes = static_cast<double>(group.nodes);
  const double sent = sent_share(kind, n) * bytes;
  if (leaves) transfer.across = transfer.form == Form::ring ? sent * nodes / n : sent * (nodes - 1.0) / (n - 1.0);
  transfer.inside = sent - transfer.across;
  return transfer;
}

Transfer hierarchical(const Cluster& cluster, CollectiveKind kind, double bytes, const Group& group) {
  const Wire near = wire_of(cluster, Reach::inside, group.users_inside);
  const Wire far = wire_of(cluster, Reach::across, group.leaving);
  const double part = bytes / static_cast<double>(group.per_node);
  const Transfer outer = over_wire(kind, part, group.nodes, far);
  const double stages = kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_gather ? 1.0 : 2.0;
  const Transfer inner = over_wire(CollectiveKind::all_gather, bytes, group.per_node, near);
  return {.seconds = outer.seconds + stages * inner.seconds,
          .form = Form::hierarchical,
          .latency = outer.latency + stages * inner.latency,
          .inside = stages * sent_share(CollectiveKind::all_gather, static_cast<double>(group.per_node)) * bytes,
          .across = sent_share(kind, static_cast<double>(group.nodes)) * part};
}

// To each of the others in turn, its own part. The member counts that has most others on other nodes; of bytes, the mean of all members.
Transfer exchange(const Cluster& cluster, double bytes, const Group& group) {
  const auto n = static_cast<double>(group.members);
  const double part = bytes / n;
  const double on_a_node = n / static_cast<double>(group.nodes);
  Transfer transfer{.form = Form::direct, .inside = (on_a_node - 1.0) * part, .across = (n - on_a_node) * part};
  const auto send = [&](Reach reach, std::int64_t users, std::int64_t others) {
    if (others == 0) return;
    const Wire wire = wire_of(cluster, reach, users);
    transfer.latency += static_cast<double>(others) * wire.latency;
    transfer.seconds += static_cast<double>(others) * (wire.latency + part / wire.bandwidth);
  };
  send(Reach::inside, group.users_inside, group.per_node - 1);
  send(Reach::across, group.leaving, group.members - group.per_node);
  return transfer;
}

}  // namespace

Transfer collective(const Cluster& cluster, CollectiveKind kind, double bytes, const Group& group) {
  if (group.members <= 1) return {};
  if (kind == CollectiveKind::all_to_all) return exchange(cluster, bytes, group);
  Transfer best = flat(cluster, kind, bytes, group);
  if (group.nodes > 1 && group.even && group.per_node > 1) {
    const Transfer nested = hierarchical(cluster, kind, bytes, group);
    if (nested.seconds < best.seconds) best = nested;
  }
  const Link* link = cluster.find(group.nodes > 1 ? Reach::across : Reach::inside);
  if (adds(kind) && link->sum_rate > 0.0) {
    const auto n = static_cast<double>(group.members);
    best.seconds += bytes * (n - 1.0) / n / link->sum_rate;
  }
  return best;
}

Transfer slowest_collective(const Cluster& cluster, CollectiveKind kind, double bytes, std::span<const Group> groups) {
  Transfer slowest;
  for (const Group& group : groups) {
    const Transfer transfer = collective(cluster, kind, bytes, group);
    if (transfer.seconds >= slowest.seconds) slowest = transfer;
  }
  return slowest;
}

Transfer message(const Cluster& cluster, double bytes, bool leaves, std::int64_t users_per_node) {
  const Wire wire = wire_of(cluster, leaves ? Reach::across : Reach::inside, users_per_node);
  return {.seconds = wire.latency + bytes / wire.bandwidth,
          .form = Form::direct,
          .latency = wire.latency,
          .inside = leaves ? 0.0 : bytes,
          .across = leaves ? bytes : 0.0};
}

Transfer copy(const Cluster& cluster, ops::Tier from, ops::Tier to, double bytes, std::int64_t users_per_node) {
  Transfer transfer{.form = Form::direct};
  if (from == to) return transfer;
  const auto cross = [&](Reach reach, double& counted) {
    const Wire wire = wire_of(cluster, reach, users_per_node);
    transfer.latency += wire.latency;
    transfer.seconds = std::max(transfer.seconds, bytes / wire.bandwidth);  // pieces of it are on both links at once
    counted = bytes;
  };
  if (from == ops::Tier::device || to == ops::Tier::device) cross(Reach::host, transfer.host);
  if (from == ops::Tier::disk || to == ops::Tier::disk) cross(Reach::disk, transfer.disk);
  transfer.seconds += transfer.latency;
  return transfer;
}

std::string_view name_of(Form form) {
  switch (form) {
    case Form::none: return "none";
    case Form::ring: return "ring";
    case Form::tree: return "tree";
    case Form::hierarchical: return "hierarchical";
    case Form::direct: return "direct";
  }
  return "";
}

}  // namespace plimsoll::cost

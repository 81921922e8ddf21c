// The price of moving bytes: between ranks (collectives, messages) and between tiers. The formulas below are all there are; the
// simulator and the planner use them, and docs/clusters.md quotes them.
//
// For n ranks, S bytes of the whole tensor, a link of latency a and bandwidth b (what one member reaches when all ranks of the
// node do the same at the same time: the narrowest shared link on the way):
//
//   ring            all-reduce          2 (n-1) (a + S / (n b))
//                   reduce-scatter,
//                   all-gather            (n-1) (a + S / (n b))
//   tree            all-reduce          2 ceil(log2 n) a + 2 S / b
//                   reduce, broadcast     ceil(log2 n) a +   S / b
//   hierarchical    g ranks in each of k nodes: reduce-scatter in the node, the same collective over nodes on S / g by each
//                   member, all-gather in the node
//   all-to-all      of n members, g on each node: (g-1) (a + S / (n b)) inside, and (n-g) (a' + S / (n b')) over nodes, with the latency
//                   and the bandwidth of either way; S is what one member has, of which it sends (n-1) / n
//   message         a + S / b
//
// A ring over nodes has g neighbours' links to the next node; where nodes have different numbers of its members, the node that carries
// least of it counts. The cheapest form counts, as communication libraries choose it.
#pragma once

#include <cstdint>
#include <string_view>

#include "cluster/cluster.h"
#include "cost/layout.h"
#include "ops/attributes.h"

namespace plimsoll::cost {

enum class Form : std::uint8_t { none, ring, tree, hierarchical, direct };

struct Transfer {
  double seconds = 0.0;
  Form form = Form::none;
  double latency = 0.0;  // of the seconds, what does not depend on the bytes
  // Bytes that one member sends over each kind of link; of a collective, the mean of all members.
  double inside = 0.0;
  double across = 0.0;
  double host = 0.0;
  double disk = 0.0;
};

// `bytes` are those of the whole tensor: what a reduce-scatter or an all-to-all takes, what an all-gather gives.
Transfer collective(const cluster::Cluster& cluster, ops::CollectiveKind kind, double bytes, const Group& group);
// Of several groups that do so at the same time, the slowest.
Transfer slowest_collective(const cluster::Cluster& cluster, ops::CollectiveKind kind, double bytes, std::span<const Group> groups);

// From a rank to another one, on the same node or (`leaves`) on another, while `users_per_node` ranks of the node do so.
Transfer message(const cluster::Cluster& cluster, double bytes, bool leaves, std::int64_t users_per_node);

// Between tiers of a node, while `users_per_node` of its ranks do so.
Transfer copy(const cluster::Cluster& cluster, ops::Tier from, ops::Tier to, double bytes, std::int64_t users_per_node);

std::string_view name_of(Form form);

}  // namespace plimsoll::cost

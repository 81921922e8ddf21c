// Where the ranks of a job are, and so which links join those that meet. Ranks fill nodes in order: rank r is on node
// r / devices_per_node, whatever its place on the axes.
//
// Groups of one axis may lie differently: of 12 ranks on nodes of six devices, the tensor groups {0..3} and {8..11} are each on one node
// and {4..7} is on two. A step waits for the slowest, so whoever prices an axis asks for all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cluster/cluster.h"

namespace plimsoll::cost {

// Ranks that meet, as they lie on nodes. A ring through them in the order of ranks leaves each node once.
struct Group {
  std::int64_t members = 1;
  std::int64_t nodes = 1;         // that they are on
  bool even = true;               // as many on each
  std::int64_t per_node = 1;      // of them, on the node whose links give them least
  std::int64_t leaving = 0;       // ranks of that node whose groups leave it, these included
  std::int64_t users_inside = 1;  // ranks of a node that do the same at the same time, these included

  bool operator==(const Group&) const = default;
};

inline std::int64_t node_of(const cluster::Cluster& cluster, std::int64_t rank) { return rank / cluster.devices_per_node; }

// Of `ranks` in all, some meet in these groups, each with its ranks in ascending order: one Group for each.
std::vector<Group> groups_of(const cluster::Cluster& cluster, std::int64_t ranks, std::span<const std::vector<std::int32_t>> groups);

// The different ones among the groups of an axis: members `stride` ranks apart, side by side over all ranks.
std::vector<Group> groups_of(const cluster::Cluster& cluster, std::int64_t members, std::int64_t stride, std::int64_t ranks);

// A pipeline whose places are `stride` ranks each: whether any rank of a place has its neighbour at the next one (behind the last comes
// the first) on another node.
bool leaves_node(const cluster::Cluster& cluster, std::int64_t stride, std::int64_t places, std::int64_t place);

// Ranks of the busiest node that have a neighbour, at the next place or at the one before, on another node.
std::int64_t users_across(const cluster::Cluster& cluster, std::int64_t stride, std::int64_t ranks);

}  // namespace plimsoll::cost

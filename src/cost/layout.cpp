#include "cost/layout.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"

namespace plimsoll::cost {

namespace {

using cluster::Cluster;

// Of a ring that has `local` of its members on a node, what the node's links carry of it while `leaving` ranks use them.
double across_bandwidth(const Cluster& cluster, std::int64_t local, std::int64_t leaving) {
  const cluster::Link* link = cluster.find(cluster::Reach::across);
  return link == nullptr ? 0.0 : static_cast<double>(local) * cluster::bandwidth_for(cluster, *link, leaving);
}

// Members on each node, in the order of nodes.
std::map<std::int64_t, std::int64_t> spread(const Cluster& cluster, const std::vector<std::int32_t>& ranks) {
  std::map<std::int64_t, std::int64_t> count;
  for (const std::int32_t rank : ranks) ++count[node_of(cluster, rank)];
  return count;
}

// Groups that all lie alike, where strides and nodes divide each other: most are so.
std::vector<Group> aligned(const Cluster& cluster, std::int64_t members, std::int64_t stride, std::int64_t ranks) {
  const std::int64_t devices = cluster.devices_per_node;
  const std::int64_t users = std::min(devices, ranks);
  Group group{.members = members, .users_inside = users};
  if (devices % (members * stride) == 0 || ranks <= devices) {
    group.per_node = members;
    return {group};
  }
  if (stride >= devices) {  // each is on a node of its own
    const std::int64_t groups_side_by_side = std::min(stride, ranks - (members - 1) * stride);
    group.nodes = members;
    group.leaving = std::min(users, groups_side_by_side);
    return {group};
  }
  if (members * stride <= ranks && devices % stride == 0 && members * stride % devices == 0) {
    group.per_node = devices / stride;
    group.nodes = members / group.per_node;
    group.leaving = devices;
    return {group};
  }
  return {};
}

}  // namespace

std::vector<Group> groups_of(const Cluster& cluster, std::int64_t ranks, std::span<const std::vector<std::int32_t>> groups) {
  std::map<std::int64_t, std::int64_t> leaving;  // by node
  for (const std::vector<std::int32_t>& members : groups) {
    const std::map<std::int64_t, std::int64_t> on = spread(cluster, members);
    if (on.size() == 1) continue;
    for (const auto& [node, count] : on) leaving[node] += count;
  }
  std::vector<Group> found;
  for (const std::vector<std::int32_t>& members : groups) {
    const std::map<std::int64_t, std::int64_t> on = spread(cluster, members);
    Group group{.members = std::ssize(members),
                .nodes = std::ssize(on),
                .per_node = on.begin()->second,
                .leaving = on.size() == 1 ? 0 : leaving[on.begin()->first],
                .users_inside = std::min(cluster.devices_per_node, ranks)};
    for (const auto& [node, count] : on) {
      if (count != on.begin()->second) group.even = false;
      if (on.size() == 1 || across_bandwidth(cluster, count, leaving[node]) >= across_bandwidth(cluster, group.per_node, group.leaving))
        continue;
      group.per_node = count;
      group.leaving = leaving[node];
    }
    found.push_back(group);
  }
  return found;
}

std::vector<Group> groups_of(const Cluster& cluster, std::int64_t members, std::int64_t stride, std::int64_t ranks) {
  if (members <= 1) return {Group{.users_inside = std::min(cluster.devices_per_node, ranks)}};
  if (std::vector<Group> alike = aligned(cluster, members, stride, ranks); !alike.empty()) return alike;
  const std::int64_t block = members * stride;
  const std::int64_t seen = std::min(ranks, std::lcm(block, cluster.devices_per_node));  // from there on it repeats itself
  std::vector<std::vector<std::int32_t>> groups;
  for (std::int64_t first = 0; first < seen; first += block) {
    for (std::int64_t offset = first; offset < first + stride && offset + (members - 1) * stride < seen; ++offset) {
      std::vector<std::int32_t>& group = groups.emplace_back();
      for (std::int64_t member = 0; member < members; ++member) group.push_back(static_cast<std::int32_t>(offset + member * stride));
    }
  }
  std::vector<Group> different;
  for (const Group& group : groups_of(cluster, ranks, groups)) {
    if (std::find(different.begin(), different.end(), group) == different.end()) different.push_back(group);
  }
  return different;
}

bool leaves_node(const Cluster& cluster, std::int64_t stride, std::int64_t places, std::int64_t place) {
  const std::int64_t first = place * stride;
  if (place + 1 < places) return node_of(cluster, first) != node_of(cluster, first + 2 * stride - 1);
  return node_of(cluster, first) != node_of(cluster, 0) || node_of(cluster, first + stride - 1) != node_of(cluster, stride - 1);
}

std::int64_t users_across(const Cluster& cluster, std::int64_t stride, std::int64_t ranks) {
  const std::int64_t devices = cluster.devices_per_node;
  if (ranks <= devices) return 0;
  const bool has_middle = ranks > 2 * devices;  // a node with others on both sides
  return std::min(devices, has_middle ? 2 * stride : stride);
}

}  // namespace plimsoll::cost

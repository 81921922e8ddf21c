// How groups and pipelines lie on nodes, against a count over all ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cluster/presets.h"
#include "cost/layout.h"

namespace plimsoll::cost {
namespace {

using cluster::Cluster;

Cluster nodes_of(std::int64_t devices, std::int64_t shared) {
  Cluster cluster = cluster::preset("dgx-h100:64");
  cluster.devices_per_node = devices;
  for (cluster::Link& link : cluster.links)
    if (link.reach == cluster::Reach::across) link.per_node = shared;
  return cluster;
}

// Closed forms of what divides, and patterns that repeat, against all groups one by one.
TEST(Layout, GroupsOfAnAxisAreThoseOfItsRanks) {
  for (const std::int64_t shared : {0, 1, 4}) {
    for (std::int64_t devices = 1; devices <= 9; ++devices) {
      const Cluster cluster = nodes_of(devices, shared);
      for (std::int64_t members : {2, 3, 4, 6, 8, 16}) {
        for (std::int64_t stride : {1, 2, 3, 4, 8, 12}) {
          for (std::int64_t blocks : {1, 2, 3, 7}) {
            const std::int64_t ranks = members * stride * blocks;
            std::vector<std::vector<std::int32_t>> all;
            for (std::int64_t first = 0; first < ranks; first += members * stride) {
              for (std::int64_t offset = 0; offset < stride; ++offset) {
                all.emplace_back();
                for (std::int64_t member = 0; member < members; ++member)
                  all.back().push_back(static_cast<std::int32_t>(first + offset + member * stride));
              }
            }
            const std::vector<Group> expected = groups_of(cluster, ranks, all);
            const std::vector<Group> found = groups_of(cluster, members, stride, ranks);
            SCOPED_TRACE(testing::Message() << members << " members, stride " << stride << ", " << ranks << " ranks, nodes of " << devices);
            for (const Group& group : expected) {
              const bool known = std::any_of(found.begin(), found.end(), [&](const Group& each) {
                // The last node may be half empty: its groups have the links to fewer.
                return each.members == group.members && each.nodes == group.nodes && each.even == group.even &&
                       each.leaving >= group.leaving;
              });
              EXPECT_TRUE(known) << group.nodes << " nodes, " << group.per_node << " on one, " << group.leaving << " leaving";
            }
            if (ranks % devices == 0) {
              for (const Group& group : found) EXPECT_TRUE(std::find(expected.begin(), expected.end(), group) != expected.end());
            }
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Layout, PipelinesLeaveNodesWhereTheirRanksDo) {
  for (std::int64_t devices = 1; devices <= 9; ++devices) {
    const Cluster cluster = nodes_of(devices, 0);
    for (std::int64_t stride = 1; stride <= 12; ++stride) {
      for (std::int64_t places = 2; places <= 9; ++places) {
        const std::int64_t ranks = stride * places;
        for (std::int64_t place = 0; place < places; ++place) {
          bool leaves = false;
          for (std::int64_t rank = place * stride; rank < (place + 1) * stride; ++rank)
            leaves = leaves || rank / devices != (rank + stride) % ranks / devices;
          EXPECT_EQ(leaves_node(cluster, stride, places, place), leaves)
              << "nodes of " << devices << ", stride " << stride << ", place " << place << " of " << places;
        }
        // Without the way from the last place to the first.
        std::vector<std::set<std::int64_t>> leaving(static_cast<std::size_t>(ranks / devices + 1));
        for (std::int64_t rank = 0; rank + stride < ranks; ++rank) {
          if (rank / devices == (rank + stride) / devices) continue;
          leaving[static_cast<std::size_t>(rank / devices)].insert(rank);
          leaving[static_cast<std::size_t>((rank + stride) / devices)].insert(rank + stride);
        }
        std::size_t most = 0;
        for (const auto& node : leaving) most = std::max(most, node.size());
        EXPECT_GE(users_across(cluster, stride, ranks), std::ssize(std::vector<int>(most)));
        EXPECT_LE(users_across(cluster, stride, ranks), devices);
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll::cost

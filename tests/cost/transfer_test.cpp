// Collectives, messages and copies against their closed forms, and what must hold for all sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/presets.h"
#include "cost/transfer.h"
#include "support/refusal.h"

namespace plimsoll::cost {
namespace {

using cluster::Cluster;
using ops::CollectiveKind;

constexpr double kBytes = 1e9;

// One node of `devices`, links of 100 GB/s without latency; four nodes, each device with 10 GB/s to others.
Cluster simple(std::int64_t devices) {
  Cluster cluster = cluster::preset("dgx-h100:4");
  cluster.devices_per_node = devices;
  cluster.links = {{.name = "near", .reach = cluster::Reach::inside, .bandwidth = 100e9},
                   {.name = "far", .reach = cluster::Reach::across, .bandwidth = 10e9},
                   {.name = "bus", .reach = cluster::Reach::host, .bandwidth = 20e9, .latency = 1e-3}};
  return cluster;
}

// Of groups that all lie alike.
Group group_of(const Cluster& cluster, std::int64_t members, std::int64_t stride, std::int64_t ranks) {
  const std::vector<Group> groups = groups_of(cluster, members, stride, ranks);
  EXPECT_EQ(groups.size(), 1u);
  return groups.front();
}

TEST(Collective, IsTheRingsClosedFormInANode) {
  const Cluster cluster = simple(8);
  const Group group = group_of(cluster, 8, 1, 32);
  EXPECT_EQ(group, (Group{.members = 8, .per_node = 8, .users_inside = 8}));
  EXPECT_DOUBLE_EQ(collective(cluster, CollectiveKind::all_reduce, kBytes, group).seconds, 2.0 * 7 / 8 * kBytes / 100e9);
  EXPECT_DOUBLE_EQ(collective(cluster, CollectiveKind::all_gather, kBytes, group).seconds, 7.0 / 8 * kBytes / 100e9);
  EXPECT_DOUBLE_EQ(collective(cluster, CollectiveKind::reduce_scatter, kBytes, group).inside, 7.0 / 8 * kBytes);
  EXPECT_EQ(collective(cluster, CollectiveKind::all_reduce, kBytes, {.members = 1}).seconds, 0.0);
}

TEST(Collective, GoesOverNodesByEveryMembersLink) {
  const Cluster cluster = simple(8);
  // All 32: one ring, which goes from node to node over eight links.
  const Transfer all = collective(cluster, CollectiveKind::all_reduce, kBytes, group_of(cluster, 32, 1, 32));
  EXPECT_DOUBLE_EQ(all.seconds, 2.0 * 31 / 32 * kBytes / 80e9);
  EXPECT_NEAR(all.across, 2.0 * 31 / 32 * kBytes / 8, 1.0);
  // Where the nodes are far apart, few long ways are better than many: in the node first, then an eighth by each member.
  Cluster slow = simple(8);
  slow.links[1].latency = 1e-3;
  const Transfer nested = collective(slow, CollectiveKind::all_gather, kBytes, group_of(slow, 32, 1, 32));
  EXPECT_EQ(nested.form, Form::hierarchical);
  EXPECT_NEAR(nested.seconds, 7.0 / 8 * kBytes / 100e9 + 3 * (1e-3 + kBytes / 8 / 4 / 10e9), 1e-9);
  EXPECT_NEAR(nested.across, 3.0 / 4 * kBytes / 8, 1.0);
  // Four that are each alone on their node.
  const Transfer spread = collective(cluster, CollectiveKind::all_reduce, kBytes, group_of(cluster, 4, 8, 32));
  EXPECT_DOUBLE_EQ(spread.seconds, 2.0 * 3 / 4 * kBytes / 10e9);
  EXPECT_EQ(spread.inside, 0.0);
}

TEST(Collective, SharesLinksThatANodeHasFewOf) {
  Cluster cluster = simple(8);
  cluster.links[1].per_node = 1;
  const Transfer shared = collective(cluster, CollectiveKind::all_gather, kBytes, group_of(cluster, 4, 8, 32));
  EXPECT_DOUBLE_EQ(shared.seconds, 3.0 / 4 * kBytes / (10e9 / 8));
}

TEST(Collective, TakesATreeWhereLatencyCounts) {
  Cluster cluster = simple(64);
  cluster.links[0].latency = 1e-5;
  const Group group = group_of(cluster, 64, 1, 64);
  EXPECT_EQ(collective(cluster, CollectiveKind::all_reduce, 8, group).form, Form::tree);
  EXPECT_NEAR(collective(cluster, CollectiveKind::all_reduce, 8, group).seconds, 12 * 1e-5, 1e-8);
  EXPECT_EQ(collective(cluster, CollectiveKind::all_reduce, 1e10, group).form, Form::ring);
}

// Each member sends its own part to every other one, in turn; who has few neighbours on its node takes longest.
TEST(Collective, ExchangesByOneMessageToEachOther) {
  Cluster cluster = simple(8);
  cluster.links[0].latency = 1e-6;
  cluster.links[1].latency = 1e-5;
  const Transfer inside = collective(cluster, CollectiveKind::all_to_all, kBytes, group_of(cluster, 8, 1, 32));
  EXPECT_DOUBLE_EQ(inside.seconds, 7 * (1e-6 + kBytes / 8 / 100e9));
  EXPECT_DOUBLE_EQ(inside.inside, 7.0 / 8 * kBytes);
  EXPECT_EQ(inside.across, 0.0);
  const Transfer all = collective(cluster, CollectiveKind::all_to_all, kBytes, group_of(cluster, 32, 1, 32));
  EXPECT_NEAR(all.seconds, 7 * (1e-6 + kBytes / 32 / 100e9) + 24 * (1e-5 + kBytes / 32 / 10e9), 1e-12);
  EXPECT_DOUBLE_EQ(all.latency, 7e-6 + 24e-5);
  EXPECT_DOUBLE_EQ(all.inside, 7.0 / 32 * kBytes);
  EXPECT_DOUBLE_EQ(all.across, 24.0 / 32 * kBytes);
  const Transfer spread = collective(cluster, CollectiveKind::all_to_all, kBytes, group_of(cluster, 4, 8, 32));
  EXPECT_DOUBLE_EQ(spread.seconds, 3 * (1e-5 + kBytes / 4 / 10e9));
  EXPECT_EQ(collective(cluster, CollectiveKind::all_to_all, kBytes, {.members = 1}).seconds, 0.0);
}

TEST(Collective, NeverCostsLessForMoreBytesOrFewerLinks) {
  for (std::string_view name : cluster::preset_names()) {
    const Cluster cluster = cluster::preset(std::string(name) + ":16");
    for (std::int64_t members : {2, 4, 8, 32, 128}) {
      for (std::int64_t stride : {1, 2, 8}) {
        if (members * stride > cluster.devices()) continue;
        const Group group = group_of(cluster, members, stride, cluster.devices());
        for (CollectiveKind kind :
             {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::broadcast, CollectiveKind::all_to_all}) {
          double last = 0.0;
          for (double bytes = 1; bytes < 1e11; bytes *= 7) {
            const Transfer transfer = collective(cluster, kind, bytes, group);
            EXPECT_GT(transfer.seconds, last);
            EXPECT_GE(transfer.seconds, transfer.latency);
            last = transfer.seconds;
          }
        }
      }
    }
  }
}

TEST(Message, CrossesOneLink) {
  const Cluster cluster = simple(8);
  EXPECT_DOUBLE_EQ(message(cluster, kBytes, false, 8).seconds, kBytes / 100e9);
  EXPECT_DOUBLE_EQ(message(cluster, kBytes, true, 8).seconds, kBytes / 10e9);
  EXPECT_EQ(message(cluster, kBytes, true, 8).across, kBytes);
}

TEST(Copy, CrossesTheLinksOnItsWay) {
  const Cluster cluster = simple(8);
  EXPECT_DOUBLE_EQ(copy(cluster, ops::Tier::device, ops::Tier::host, kBytes, 8).seconds, 1e-3 + kBytes / 20e9);
  EXPECT_THAT(tests::refusal([&] { copy(cluster, ops::Tier::host, ops::Tier::disk, kBytes, 8); }), testing::HasSubstr("\"disk\""));
}

}  // namespace
}  // namespace plimsoll::cost

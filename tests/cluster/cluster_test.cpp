// Presets are possible, shared links are shared, and impossible clusters are refused with their reasons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/presets.h"
#include "support/refusal.h"

namespace plimsoll::cluster {
namespace {

using testing::HasSubstr;

TEST(Presets, AreAllPossible) {
  for (std::string_view name : preset_names()) {
    const Cluster cluster = preset(std::string(name) + ":3");
    EXPECT_TRUE(problems_of(cluster).empty()) << name;
    EXPECT_EQ(cluster.nodes, 3);
    EXPECT_EQ(cluster.devices(), 3 * cluster.devices_per_node);
  }
}

TEST(Presets, RefuseUnknownNamesAndCounts) {
  EXPECT_THAT(tests::refusal([] { preset("dgx-a100"); }), HasSubstr("dgx-a100-80g"));
  for (const char* text : {"dgx-h100:0", "dgx-h100:-2", "dgx-h100:x", "dgx-h100:", "dgx-h100:99999999999999999999"})
    EXPECT_THAT(tests::refusal([&] { preset(text); }), HasSubstr("count of nodes")) << text;
}

// One device of a DGX-2 alone, and all sixteen together, as its makers of large models report: 12; 4.1 and 1.6 GB/s.
TEST(Links, AreSharedByTheDevicesOfANode) {
  const Cluster cluster = preset("dgx2-v100-32g");
  const Link& host = *cluster.find(Reach::host);
  const Link& disk = *cluster.find(Reach::disk);
  EXPECT_NEAR(bandwidth_for(cluster, host, 1), 12e9, 1e6);
  EXPECT_NEAR(bandwidth_for(cluster, host, 16), 4.1e9, 0.1e9);
  EXPECT_NEAR(bandwidth_for(cluster, disk, 16), 1.6e9, 0.1e9);
  EXPECT_NEAR(16 * bandwidth_for(cluster, host, 16), 64e9, 2e9);
  EXPECT_NEAR(16 * bandwidth_for(cluster, disk, 16), 28e9, 2e9);
  EXPECT_GT(latency_of(cluster, host), 0.0);
}

Cluster two_devices() {
  Cluster cluster = preset("dgx-h100");
  cluster.devices_per_node = 2;
  return cluster;
}

std::string problems(const Cluster& cluster) { return fmt::format("{}", fmt::join(problems_of(cluster), "; ")); }

TEST(Problems, NameWhatCannotBe) {
  Cluster cluster = two_devices();
  cluster.links.clear();
  EXPECT_THAT(problems(cluster), HasSubstr("no link joins the 2 devices of a node"));
  cluster = two_devices();
  cluster.nodes = 2;
  std::erase_if(cluster.links, [](const Link& link) { return link.reach == Reach::across; });
  EXPECT_THAT(problems(cluster), HasSubstr("no link joins the 2 nodes"));
  cluster = two_devices();
  cluster.device.rates[DType::bf16] = -1.0;
  EXPECT_THAT(problems(cluster), HasSubstr("device.rates.bf16 is -1"));
  cluster = two_devices();
  cluster.device.bandwidth = 0.0;
  EXPECT_THAT(problems(cluster), HasSubstr("device.bandwidth is 0"));
  cluster = two_devices();
  cluster.links[0].bandwidth = -5.0;
  EXPECT_THAT(problems(cluster), HasSubstr("bandwidth is -5"));
  cluster = two_devices();
  cluster.links[0].over = cluster.links[1].name;
  cluster.links[1].over = cluster.links[0].name;
  EXPECT_THAT(problems(cluster), HasSubstr("in a circle"));
  cluster = two_devices();
  cluster.links[0].over = cluster.links[0].name;
  EXPECT_THAT(problems(cluster), HasSubstr("in a circle"));
  cluster = two_devices();
  cluster.links[0].over = "nothing";
  EXPECT_THAT(problems(cluster), HasSubstr("none of the links"));
  cluster = two_devices();
  cluster.nodes = 0;
  EXPECT_THAT(problems(cluster), HasSubstr("nodes is 0"));
  cluster = two_devices();
  cluster.device.rates[DType::i32] = 1e12;
  EXPECT_THAT(problems(cluster), HasSubstr("a type of floating-point numbers"));
  cluster = two_devices();
  cluster.device.samples = {{.op = "linear", .threads = -1, .extents = {8, 8, 8}, .seconds = 1e-3}};
  EXPECT_THAT(problems(cluster), HasSubstr("a sample of \"linear\""));
  cluster.device.samples = {{.op = "linear", .threads = 1, .extents = {8, 0, 8}, .seconds = 1e-3}};
  EXPECT_THAT(problems(cluster), HasSubstr("on 8 x 0 x 8"));
}

}  // namespace
}  // namespace plimsoll::cluster

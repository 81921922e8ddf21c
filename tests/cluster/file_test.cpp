// Cluster files: what is written reads back the same, and wrong ones are refused with line and key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/file.h"
#include "cluster/presets.h"
#include "support/refusal.h"

namespace plimsoll::cluster {
namespace {

using testing::HasSubstr;

TEST(ClusterFile, ReadsBackWhatItWrote) {
  for (std::string_view name : preset_names()) {
    Cluster cluster = preset(name);
    cluster.device.samples = {{.op = "linear", .dtype = DType::bf16, .threads = 2, .extents = {64, 128, 256}, .seconds = 1e-3}};
    cluster.origin = "file.json";
    EXPECT_EQ(parse_cluster(base::write_json(to_json(cluster), base::JsonLayout::pretty), "file.json"), cluster) << name;
  }
}

TEST(ClusterFile, StartsFromAPreset) {
  const Cluster cluster = parse_cluster(R"({"preset": "dgx-h100:4", "device": {"memory": "60GiB"}, "price": 2.5})", "mine.json");
  EXPECT_EQ(cluster.nodes, 4);
  EXPECT_EQ(cluster.device.memory, Bytes{60ll << 30});
  EXPECT_EQ(cluster.price, 2.5);
  EXPECT_EQ(cluster.device.units, preset("dgx-h100").device.units);
}

TEST(ClusterFile, RefusesWhatItDoesNotKnow) {
  const auto refusal = [](const char* text) { return tests::refusal([&] { parse_cluster(text, "c.json"); }); };
  EXPECT_THAT(refusal(R"({"preset": "dgx-h100", "node": 2})"), HasSubstr("did you mean \"nodes\""));
  EXPECT_THAT(refusal(R"({"preset": "dgx-h100", "device": {"rates": {"f99": 1}}})"), HasSubstr("an element type"));
  EXPECT_THAT(refusal(R"({"preset": "dgx-h100", "device": {"memory": "lots"}})"), HasSubstr("an amount of memory"));
  EXPECT_THAT(refusal(R"({"preset": "dgx-h100", "links": [{"name": "a", "joins": "moon"}]})"), HasSubstr("\"inside\""));
  EXPECT_THAT(refusal(R"({"preset": "dgx-h100", "links": []})"), HasSubstr("no link joins"));
  EXPECT_THAT(refusal(R"({"preset": "dgx-h100", "device": {"bandwidth": -1}})"), HasSubstr("c.json"));
  EXPECT_THAT(refusal("[]"), HasSubstr("object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("device.rates is empty"));
}

}  // namespace
}  // namespace plimsoll::cluster

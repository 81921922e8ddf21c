// `plimsoll simulate` as its user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

using testing::HasSubstr;

class Simulate : public testing::Test {
 protected:
  Ended simulate(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"simulate", "run.json"});
    return folder_.plimsoll(arguments, {"XDG_CONFIG_HOME=" + folder_.path("settings").string()});
  }

  RunFolder folder_;
};

TEST_F(Simulate, GivesWhatItPromises) {
  const Ended ended = simulate({"--cluster", "dgx-a100-80g", "--json", "--trace", "trace.json", "--html", "page.html", "--set",
                                "model.layers=4", "--set", "strategy={\"data\": 2, \"pipe\": 2}"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json json = base::parse_json(ended.out, "output", {.strict = true});
  EXPECT_TRUE(json.at("fits").as_bool());
  EXPECT_EQ(json.at("ranks").as_integer(), 4);
  const double seconds = json.at("step_seconds").as_double();
  EXPECT_GT(seconds, 0.0);
  EXPECT_NEAR(json.at("tokens_per_second").as_double() * seconds, 4.0 * 16.0, 1e-6);
  EXPECT_GT(json.at("bubble_fraction").as_double(), 0.0);
  EXPECT_LE(json.at("model_tflops_per_device").as_double(), json.at("hardware_tflops_per_device").as_double());
  EXPECT_GT(json.at("bytes_moved").at("inside").as_double(), 0.0);
  for (const char* place : {"pipe 0", "pipe 1"}) {
    EXPECT_GT(json.at("peak_bytes").at(place).at("device").as_integer(), 0);
    EXPECT_GT(json.at("waterline").at(place).at("device").size(), 1u);
  }
  const base::Json trace = base::parse_json(folder_.read("trace.json"), "trace", {.strict = true});
  EXPECT_GT(trace.size(), 20u);
  EXPECT_THAT(folder_.read("page.html"), HasSubstr("<html"));
}

TEST_F(Simulate, SlowRanksTakeLonger) {
  const auto seconds = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--cluster", "dgx-a100-80g", "--json", "--set", "strategy.data=2"});
    return base::parse_json(simulate(more).out, "output").at("step_seconds").as_double();
  };
  EXPECT_GT(seconds({"--slow", "1:3"}), 1.5 * seconds({}));
}

TEST_F(Simulate, RefusesWithAReason) {
  Ended ended = simulate({});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("plimsoll calibrate"));
  ended = simulate({"--cluster", "dgx-a100"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("dgx-a100-80g"));
  ended = simulate({"--cluster", "dgx-h100", "--set", "strategy.data=4", "--slow", "x"});
  EXPECT_EQ(ended.exit_code, 2);
  ended = simulate({"--cluster", "p3.16xlarge", "--set", "batch.global=64", "--set", "strategy.data=32"});
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.err, HasSubstr("use 4 nodes"));
  folder_.write("broken.json", R"({"preset": "dgx-h100", "links": []})");
  ended = simulate({"--cluster", "broken.json"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("no link joins"));
  folder_.write("tiny.json", R"({"preset": "dgx-h100", "device": {"memory": "1MiB", "reserve": 0}})");
  ended = simulate({"--cluster", "tiny.json", "--set", "model.width=64", "--set", "model.layers=8"});
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.err, HasSubstr("does not fit"));
}

}  // namespace
}  // namespace plimsoll::tests

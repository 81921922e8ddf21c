#include "observe/metrics_file.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/json.h"

namespace plimsoll::observe {
namespace {

StepDone sample_step(std::int64_t step) {
  return {
      .step = step, .loss = 2.5, .grad_norm = 0.1, .lr = 3e-4, .seconds = 0.25, .tokens_per_second = 4096, .peak_bytes = {.host = 1 << 20}};
}

TEST(MetricsFile, EveryLineHasThePromisedKeys) {
  std::vector<std::string> writes;
  MetricsFile file([&](std::string_view text) { writes.emplace_back(text); });
  file.on(RunStarted{});
  file.on(sample_step(1));
  file.on(Notice{});
  StepDone second = sample_step(2);
  second.loss_scale = 1024;
  second.skipped = true;
  second.device = DeviceUse{.memory_bytes = 123, .watts = 650.5, .megahertz = 1980};
  second.grad_norm = std::numeric_limits<double>::infinity();
  second.evaluation = Evaluation{.loss = 3.25, .tokens = 100, .seconds = 0.5};
  file.on(second);
  ASSERT_EQ(writes.size(), 2u);  // one write per line
  EXPECT_EQ(writes[0],
            R"({"step":1,"loss":2.5,"grad_norm":0.1,"lr":0.0003,"seconds":0.25,"tokens_per_second":4096.0,"peak_bytes":{"host":1048576}})"
            "\n");
  for (const std::string& line : writes) {
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const base::Json parsed = base::parse_json(line, "line", {.strict = true});
    for (const char* key : {"step", "loss", "grad_norm", "lr", "seconds", "tokens_per_second", "peak_bytes"}) {
      EXPECT_NE(parsed.find(key), nullptr) << key;
    }
  }
  const base::Json parsed = base::parse_json(writes[1], "line", {.strict = true});
  EXPECT_TRUE(parsed.at("grad_norm").is_null());
  EXPECT_TRUE(parsed.at("skipped").as_bool());
  EXPECT_EQ(parsed.at("loss_scale").as_double(), 1024);
  EXPECT_EQ(parsed.at("device").at("memory_bytes").as_integer(), 123);
  EXPECT_EQ(parsed.at("device").at("watts").as_double(), 650.5);
  EXPECT_EQ(parsed.at("device").at("megahertz").as_double(), 1980);
  EXPECT_EQ(parsed.at("eval_loss").as_double(), 3.25);
  EXPECT_EQ(parsed.at("eval_tokens").as_integer(), 100);
}

TEST(MetricsFile, NumbersReadBackToTheSameBits) {
  StepDone step = sample_step(7);
  step.loss = static_cast<double>(2.7182817f);
  step.lr = 1.0 / 3.0;
  const base::Json parsed = base::parse_json(metrics_line(step), "line");
  EXPECT_EQ(parsed.at("loss").as_double(), step.loss);
  EXPECT_EQ(parsed.at("lr").as_double(), step.lr);
}

TEST(MetricsFile, ResumedRunsKeepWholeLinesUpToTheirStep) {
  std::string text;
  for (int step = 1; step <= 5; ++step) text += metrics_line(sample_step(step));
  const std::string three = metrics_line(sample_step(1)) + metrics_line(sample_step(2)) + metrics_line(sample_step(3));
  EXPECT_EQ(metrics_through(text, 3), three);
  EXPECT_EQ(metrics_through(text, 100), text);
  EXPECT_EQ(metrics_through(text, 0), "");
  EXPECT_EQ(metrics_through("", 3), "");
  for (std::size_t cut = three.size(); cut < text.size(); ++cut) {
    const std::string_view kept = metrics_through(std::string_view(text).substr(0, cut), 100);
    EXPECT_TRUE(kept.empty() || kept.back() == '\n');
    EXPECT_EQ(text.substr(0, kept.size()), kept);
    EXPECT_GE(kept.size(), three.size());
  }
  EXPECT_EQ(metrics_through(three + "{\"step\":4,\"lo\n" + metrics_line(sample_step(5)), 100), three);
}

}  // namespace
}  // namespace plimsoll::observe

// `plimsoll plan` where memory is tight: whatever can be written out and fits, the planner finds a way too.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

class TightPlan : public testing::Test {
 protected:
  Ended run(std::vector<std::string> words, const std::vector<std::string>& sets) const {
    words.insert(words.begin() + 1, "run.json");
    for (const char* size : {"model.layers=4", "model.width=256", "model.heads=4", "model.vocab=2048", "model.dropout=0"})
      words.insert(words.end(), {"--set", size});
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return folder_.plimsoll(words);
  }

  static std::int64_t device_bytes(const base::Json& simulated) {
    std::int64_t most = 0;
    for (const base::JsonMember& member : simulated.at("peak_bytes").as_object())
      most = std::max(most, member.value.at("device").as_integer());
    return most;
  }

  RunFolder folder_;
};

// On GPUs: the limit is what a strategy needs that somebody wrote out, to the byte.
TEST_F(TightPlan, FindsWhatFitsWhereAWrittenStrategyDoes) {
  const std::string_view everything = R"("offload": {"optimizer": "TIER", "params": "TIER", "gradients": "TIER", "activations": "TIER"})";
  struct Case {
    int ranks;
    std::string_view strategy;
    std::string_view tier;
  };
  for (const auto& [ranks, strategy, tier] : {Case{1, R"("recompute": "full")", "disk"},
                                              {1, R"("recompute": "selective", "prefetch": 0)", "host"},
                                              {1, R"("recompute": "full", "prefetch": 1, "bucket": "1MB")", "disk"},
                                              {1, R"("recompute": "selective", "prefetch": 0, "tile": "256KiB")", "host"},
                                              {2, R"("data": 2, "zero": 3, "keep_grads": false, "recompute": "full")", "host"},
                                              {2, R"("tensor": 2, "recompute": "full", "split_activations": true, "prefetch": 0)", "host"},
                                              {4, R"("pipe": 4, "recompute": "full")", "host"}}) {
    std::string offload(everything);
    for (std::size_t at = offload.find("TIER"); at != std::string::npos; at = offload.find("TIER")) offload.replace(at, 4, tier);
    const std::string written = fmt::format("strategy={{{}, {}}}", strategy, offload);
    const Ended simulated = run({"simulate", "--cluster", "dgx-h100", "--json"}, {written, "batch.micro=1"});
    ASSERT_EQ(simulated.exit_code, 0) << written << simulated.err;
    const std::string limit = fmt::format("limits.device={}", device_bytes(base::parse_json(simulated.out, "simulated")));
    // The tiny run gives its micro-batch, which the planner keeps.
    const Ended found = run({"plan", "--cluster", "dgx-h100", "--json", "--ranks", std::to_string(ranks)}, {limit, "batch.micro=1"});
    ASSERT_EQ(found.exit_code, 0) << written << ", " << limit << "\n" << found.err;
    const base::Json first = base::parse_json(found.out, "plan").at("candidates").at(0);
    const Ended again = run({"simulate", "--cluster", "dgx-h100", "--json"},
                            {limit, "batch.micro=1", "strategy=" + base::write_json(first.at("settings"))});
    ASSERT_EQ(again.exit_code, 0) << again.err;
    const base::Json forecast = base::parse_json(again.out, "simulated");
    EXPECT_TRUE(forecast.at("fits").as_bool()) << first.at("strategy").as_string();
    EXPECT_NEAR(forecast.at("step_seconds").as_double(), first.at("step_seconds").as_double(), 1e-9);
  }
}

// What somebody would write who tries by hand, and how small and how fast that is. Under limits at which each of them just fits, what is
// planned is not slower than the fastest that does.
TEST_F(TightPlan, IsNotSlowerThanWhatSomebodyWouldWrite) {
  const auto all_on = [](std::string_view tier) {
    return fmt::format(R"("offload": {{"optimizer": "{0}", "params": "{0}", "gradients": "{0}", "activations": "{0}"}})", tier);
  };
  const std::vector<std::string> written{
      R"("recompute": "none")",
      R"("recompute": "selective")",
      R"("recompute": "full")",
      R"("recompute": "full", "recompute_every": 2)",
      R"("recompute": "full", "offload": {"optimizer": "host"})",
      R"("recompute": "full", "recompute_every": 2, "offload": {"optimizer": "host", "gradients": "host"})",
      R"("recompute": "none", "offload": {"optimizer": "host", "params": "host", "gradients": "host"})",
      R"("recompute": "full", )" + all_on("host"),
      R"("recompute": "none", )" + all_on("host"),
      R"("recompute": "full", "prefetch": 1, "bucket": "1MB", )" + all_on("host"),
      R"("recompute": "selective", "prefetch": 0, "tile": "256KiB", )" + all_on("host"),
      R"("recompute": "none", "prefetch": 0, "bucket": "1MB", "tile": "512KiB", )" + all_on("host"),
      R"("recompute": "none", "prefetch": 0, "bucket": "1MB", "tile": "128KiB", )" + all_on("host"),
      R"("recompute": "full", )" + all_on("disk")};
  for (const char* const size : {"model.vocab=2048", "model.vocab=16384"}) {
    struct Tried {
      std::int64_t bytes = 0;
      double seconds = 0.0;
      std::string strategy;
    };
    std::vector<Tried> tried;
    for (const std::string& strategy : written) {
      const Ended simulated = run({"simulate", "--cluster", "dgx-h100", "--json"}, {"strategy={" + strategy + "}", "batch.micro=2", size});
      ASSERT_EQ(simulated.exit_code, 0) << strategy << simulated.err;
      const base::Json json = base::parse_json(simulated.out, "simulated");
      tried.push_back({device_bytes(json), json.at("step_seconds").as_double(), strategy});
    }
    std::sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) { return a.bytes < b.bytes; });
    Tried fastest = tried[0];
    for (std::size_t index = 0; index < tried.size(); ++index) {
      if (tried[index].seconds < fastest.seconds) fastest = tried[index];
      if (index % 3 != 0) continue;
      const std::string limit = fmt::format("limits.device={}", tried[index].bytes);
      const Ended found = run({"plan", "--cluster", "dgx-h100", "--json", "--ranks", "1"}, {limit, "batch.micro=2", size});
      ASSERT_EQ(found.exit_code, 0) << limit << "\n" << found.err;
      const base::Json best = base::parse_json(found.out, "plan").at("candidates").at(0);
      EXPECT_LE(best.at("step_seconds").as_double(), 1.05 * fastest.seconds)
          << size << ", " << limit << ": " << best.at("strategy").as_string() << ", not " << fastest.strategy;
    }
  }
}

// On this machine's processor, measured or not: a disk tier is a place for everything, activations too, and the host's memory is none.
TEST_F(TightPlan, AProcessorUsesItsDisk) {
  const std::vector<std::string> sizes{"limits.disk_path=.", "batch.micro=1", "model.layers=8", "model.width=512", "steps=1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), sizes.begin(), sizes.end());
    return more;
  };
  const std::string written =
      R"(strategy={"recompute": "full", "offload": {"optimizer": "disk", "params": "disk", "gradients": "disk", "activations": "disk"}})";
  const Ended planned = run({"plan", "--json"}, with({written}));
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  // What lies beside arenas is measured in each process and rounded up by the planner.
  const std::int64_t arena =
      base::parse_json(planned.out, "plan").at("candidates").at(0).at("peak_bytes").at("all").at("device").as_integer();
  const std::string limit = fmt::format("limits.device={}", arena + (std::int64_t{40} << 20));
  const Ended fits = run({"plan", "--json"}, with({written, limit}));
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  const Ended open = run({"plan", "--json"}, with({"strategy=auto", limit}));
  ASSERT_EQ(open.exit_code, 0) << limit << "\n" << open.err;
  const base::Json settings = base::parse_json(open.out, "plan").at("candidates").at(0).at("settings");
  EXPECT_EQ(base::write_json(settings.at("offload")).find("host"), std::string::npos);
  const Ended trained = run({"train"}, with({"strategy=auto", limit}));
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("on the disk"), std::string::npos) << trained.out;
}

}  // namespace
}  // namespace plimsoll::tests

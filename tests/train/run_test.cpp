// A training as one library call: what an observer hears, what lies in the folder afterwards, and how a second call goes on.
#include "train/run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "config/config.h"

namespace plimsoll::train {
namespace {

struct Heard final : RunObserver {
  void on(const observe::Event& event) override {
    if (const auto* step = std::get_if<observe::StepDone>(&event)) losses.push_back(step->loss);
    if (stop_after > 0 && std::ssize(losses) == stop_after) stop.store(true);
  }
  void planned(const plan::Plan& plan, const Capacity& capacity) override {
    order += "planned ";
    ranks = plan.mesh.ranks();
    EXPECT_GT(capacity.reserve.count, 0);
  }
  void begins(const Beginning& beginning) override {
    order += "begins ";
    resumed = beginning.resumed.from.has_value();
    EXPECT_GT(beginning.data.size(), 0);
  }
  void ended(const End& end) override {
    order += "ended";
    began = end.began;
    done = end.done;
    stopped = end.stopped;
    EXPECT_EQ(end.times.size(), end.plan.classes.size());
  }

  std::string order;
  std::vector<double> losses;
  std::int64_t ranks = 0;
  std::int64_t began = -1;
  std::int64_t done = -1;
  bool resumed = false;
  bool stopped = false;
  std::int64_t stop_after = 0;
  std::atomic<bool> stop{false};
};

class RunTest : public testing::Test {
 protected:
  RunTest() : folder_(std::filesystem::temp_directory_path() / ("plimsoll-run-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ / "train.txt", std::ios::binary);
    for (int line = 0; line < 200; ++line) text << "the quick brown fox jumps over the lazy dog\n";
  }
  ~RunTest() override { std::filesystem::remove_all(folder_); }

  config::Run run_in(const std::string& out, const std::vector<std::string>& overrides = {}) {
    const std::string text = R"({"model": {"family": "gpt2", "layers": 2, "width": 16, "heads": 2, "context": 32, "vocab": 256},
      "data": {"train": ")" + (folder_ / "train.txt").string() +
                             R"("}, "batch": {"global": 4, "micro": 2, "sequence": 16}, "steps": 6, "threads": 1,
      "out": ")" + (folder_ / out).string() +
                             R"("})";
    return config::parse_run(text, "test.json", overrides);
  }
  std::size_t lines_of(const std::string& name) {
    std::ifstream file(folder_ / name);
    std::size_t lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  }

  std::filesystem::path folder_;
};

TEST_F(RunTest, TrainsAndLeavesWhatTheCommandLeaves) {
  Heard heard;
  run(run_in("out"), heard);
  EXPECT_EQ(heard.order, "planned begins ended");
  EXPECT_EQ(heard.losses.size(), 6u);
  EXPECT_LT(heard.losses.back(), heard.losses.front());
  EXPECT_EQ(heard.began, 0);
  EXPECT_EQ(heard.done, 6);
  for (const char* name : {"run.json", "plan.json", "metrics.jsonl", "checkpoints"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / "out" / name)) << name;
  EXPECT_EQ(lines_of("out/metrics.jsonl"), 6u);
}

TEST_F(RunTest, ASecondCallGoesOnWhereAStopWasWanted) {
  Heard whole;
  run(run_in("whole"), whole);

  Heard first;
  first.stop_after = 2;
  run(run_in("parts"), first, {.stop_wanted = &first.stop});
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.done, 2);
  Heard second;
  run(run_in("parts"), second);
  EXPECT_TRUE(second.resumed);
  EXPECT_EQ(second.began, 2);
  std::vector<double> losses = first.losses;
  losses.insert(losses.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(losses, whole.losses);
  EXPECT_EQ(lines_of("parts/metrics.jsonl"), 6u);

  Heard anew;
  run(run_in("parts"), anew, {.fresh = true, .until = 3});
  EXPECT_FALSE(anew.resumed);
  EXPECT_EQ(anew.losses, std::vector<double>(whole.losses.begin(), whole.losses.begin() + 3));
}

TEST_F(RunTest, RanksAreThreadsAndOneOfThemIsHeard) {
  Heard one;
  run(run_in("one"), one);
  Heard two;
  std::atomic<int> ready{0};
  run(run_in("two", {"strategy.pipe=2"}), two, {.ready = [&] { ++ready; }});
  EXPECT_EQ(two.ranks, 2);
  EXPECT_EQ(ready.load(), 2);
  EXPECT_EQ(two.order, "planned begins ended");
  EXPECT_EQ(two.losses, one.losses);
}

TEST_F(RunTest, RefusesBeforeAnythingIsWritten) {
  Heard heard;
  EXPECT_THROW(run(run_in("out"), heard, {.until = 7}), base::Error);
  EXPECT_THROW(run(run_in("out", {"strategy.data=3"}), heard), base::Error);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_EQ(heard.order, "");
}

}  // namespace
}  // namespace plimsoll::train

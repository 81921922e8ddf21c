// Runs that are ended by SIGKILL at random moments and started again until they finish leave the same bytes as one that
// was never disturbed: final weights, moments, step scalars and data position, settings, plan and losses. No more work is
// lost than what followed the last checkpoint, or the one before it where saves run beside training.
//
// A moment is a time after the start, or a number of lines in the metrics file; both fall into start, step, save,
// retention and load. PLIMSOLL_KILL_SEED in the environment repeats the trials of a seed that a failure has named.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::int64_t kSteps = 24;
constexpr std::int64_t kEvery = 4;
constexpr int kKills = 3;

// Carrying: beside training, and steps leave their update to the next. Rows: beside training, of a token table on disk.
enum class Saving { beside, waiting, carrying, rows };

std::vector<std::string> train_with(Saving saving) {
  const std::string async = saving == Saving::waiting ? "checkpoint.async=false" : "checkpoint.async=true";
  std::vector<std::string> command{"train", "run.json",  "--set", "steps=24",     "--set", "checkpoint.every=4",
                                   "--set", "threads=1", "--set", "eval.every=6", "--set", async};
  if (saving == Saving::carrying) {
    for (const char* set : {"optimizer.clip=1", "strategy.offload.optimizer=host", "strategy.carry_update=always"})
      command.insert(command.end(), {"--set", set});
  }
  if (saving == Saving::rows) {
    for (const char* set : {"model.tied=false", "strategy.embedding_rows=disk", "limits.disk_path=."})
      command.insert(command.end(), {"--set", set});
  }
  return command;
}

struct Result {
  std::string data;
  std::string manifest;
  std::string run;
  std::string plan;
  std::vector<std::string> losses;
  std::vector<std::string> evaluations;
  std::vector<std::string> steps;

  bool operator==(const Result&) const = default;
};

Result result_of(const RunFolder& folder) {
  const std::string metrics = folder.read("out/metrics.jsonl");
  const std::string last = "out/checkpoints/step-00000024/";
  return {.data = folder.read(last + "data-00000.bin"),
          .manifest = folder.read(last + "manifest.json"),
          .run = folder.read("out/run.json"),
          .plan = folder.read("out/plan.json"),
          .losses = column(metrics, "loss"),
          .evaluations = column(metrics, "eval_loss"),
          .steps = column(metrics, "step")};
}

// Complete lines. A line that crosses a page of the file may be seen, and a kill may leave it, in part.
std::int64_t lines_written(const RunFolder& folder) {
  const std::string text = folder.read("out/metrics.jsonl");
  return static_cast<std::int64_t>(std::count(text.begin(), text.end(), '\n'));
}

std::int64_t resumed_after(const std::string& said) {
  static constexpr std::string_view kWords = "resuming after step ";
  if (said.find("the run is finished") != std::string::npos) return kSteps;  // killed behind its last save
  const std::size_t at = said.find(kWords);
  return at == std::string::npos ? 0 : std::stoll(said.substr(at + kWords.size()));
}

class Kill : public testing::TestWithParam<Saving> {
 protected:
  void SetUp() override {
    const char* const wanted = std::getenv("PLIMSOLL_KILL_SEED");
    seed_ = wanted != nullptr ? static_cast<std::uint32_t>(std::stoul(wanted)) : std::random_device()();
    random_.seed(seed_);
    golden_ = undisturbed();
    // The shorter of two: moments that fall behind the end of a run show nothing.
    ASSERT_TRUE(undisturbed() == golden_);
    ASSERT_EQ(golden_.losses.size(), static_cast<std::size_t>(kSteps));
    ASSERT_FALSE(golden_.data.empty());
  }

  Result undisturbed() {
    const RunFolder folder;
    const auto start = Clock::now();
    const Ended ended = folder.plimsoll(train_with(GetParam()));
    whole_ = std::min(whole_, Seconds(Clock::now() - start));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return result_of(folder);
  }

  double uniform(double end) { return std::uniform_real_distribution<double>(0.0, end)(random_); }

  // Waits for a random moment of the child's life, or its end.
  void await_moment(Child& child, const RunFolder& folder, std::int64_t lines_before) {
    const bool by_time = uniform(1.0) < 0.5;
    const auto deadline = Clock::now() + (by_time ? Seconds(uniform(whole_.count())) : Seconds(30.0));
    const auto lines = by_time ? kSteps + 1 : lines_before + 1 + static_cast<std::int64_t>(uniform(static_cast<double>(kSteps) / 2));
    const auto extra = Seconds(uniform(0.01));
    while (child.running() && Clock::now() < deadline) {
      if (!by_time && lines_written(folder) >= lines) {
        std::this_thread::sleep_for(extra);
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }

  // Starts the run; kills it unless `undisturbed`. Whether it had finished.
  bool start_once(const RunFolder& folder, bool undisturbed) {
    const std::int64_t before = lines_written(folder);
    Child child(plimsoll_command(train_with(GetParam())), folder.path());
    if (!undisturbed) {
      await_moment(child, folder, before);
      child.send(SIGKILL);
    }
    const Ended ended = child.wait();
    EXPECT_TRUE(ended.exit_code == 0 || ended.signal == SIGKILL) << "exit code " << ended.exit_code << ", signal " << ended.signal << "\n"
                                                                 << ended.err;
    if (ended.exit_code == 0) {
      // Line n + 1 is written after the save that follows step n, if one does.
      const std::int64_t started = before == 0 ? 0 : (before - 1) / kEvery * kEvery;
      // The one that was in flight may be lost; a save begins only after the one before it has ended.
      const std::int64_t least = GetParam() != Saving::waiting ? std::max<std::int64_t>(0, started - kEvery) : started;
      EXPECT_GE(resumed_after(ended.out), least) << "more was lost than what followed the last checkpoint; lines before: " << before;
      EXPECT_LE(resumed_after(ended.out), before);
      EXPECT_EQ(ended.out.find("passed over"), std::string::npos) << ended.out;
    }
    killed_ += ended.signal == SIGKILL;
    return ended.signal != SIGKILL;
  }

  std::uint32_t seed_ = 0;
  std::mt19937 random_;
  Seconds whole_{1e9};
  Result golden_;
  int killed_ = 0;
};

TEST_P(Kill, LeavesTheSameBytes) {
  const int trials = PLIMSOLL_KILL_TRIALS / 4;
  for (int trial = 0; trial < trials; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial) + " of PLIMSOLL_KILL_SEED=" + std::to_string(seed_));
    const RunFolder folder;
    for (int start = 0; !start_once(folder, start >= kKills) && !HasFailure(); ++start) {
    }
    const Result found = result_of(folder);
    EXPECT_EQ(found.steps, golden_.steps);
    EXPECT_EQ(found.losses, golden_.losses);
    EXPECT_EQ(found.evaluations, golden_.evaluations);
    EXPECT_TRUE(found.data == golden_.data) << "the final checkpoint's data differ";
    EXPECT_TRUE(found.manifest == golden_.manifest) << "the final checkpoint's manifests differ";
    EXPECT_EQ(found.run, golden_.run);
    EXPECT_TRUE(found.plan == golden_.plan) << "the stored plans differ";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path("out"))) {
      EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << "debris: " << entry.path();
    }
    if (HasFailure()) return;
  }
  RecordProperty("kills", killed_);
  std::printf("%d kills in %d trials (seed %u)\n", killed_, trials, seed_);
  // Fewer would mean that the moments are not chosen well, and that nothing was shown.
  EXPECT_GE(killed_, trials / 2);
}

INSTANTIATE_TEST_SUITE_P(Ways, Kill, testing::Values(Saving::beside, Saving::waiting, Saving::carrying, Saving::rows),
                         [](const auto& test) {
                           return test.param == Saving::beside     ? "beside"
                                  : test.param == Saving::waiting  ? "waiting"
                                  : test.param == Saving::carrying ? "carrying"
                                                                   : "rows";
                         });

}  // namespace
}  // namespace plimsoll::tests

// SIGTERM and SIGINT: the step in hand is finished and saved, the exit is a good one, and the next start goes on from there.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{30};  // on a busy machine

class Stop : public testing::Test {
 protected:
  std::vector<std::string> endless() const {
    return plimsoll_command({"train", "run.json", "--set", "steps=1000000", "--set", "checkpoint.every=0"});
  }

  void wait_for_lines(Child& child, std::size_t count) {
    const auto deadline = Clock::now() + kPatience;
    while (child.running() && Clock::now() < deadline && lines_of(folder_.read("out/metrics.jsonl")).size() < count) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(child.running()) << child.wait().err;
    ASSERT_GE(lines_of(folder_.read("out/metrics.jsonl")).size(), count);
  }

  // The steps that the folder's only checkpoint is after.
  std::int64_t saved_step() const {
    std::int64_t step = -1;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path("out/checkpoints"))) {
      EXPECT_EQ(step, -1) << "more than one checkpoint";
      step = std::stoll(entry.path().filename().string().substr(5));
    }
    return step;
  }

  RunFolder folder_;
};

TEST_F(Stop, SavesAndResumes) {
  for (const int signal : {SIGTERM, SIGINT}) {
    std::filesystem::remove_all(folder_.path("out"));
    Child child(endless(), folder_.path());
    wait_for_lines(child, 3);
    child.send(signal);
    const auto sent = Clock::now();
    const Ended ended = child.wait();
    // A step takes well under a millisecond and a save a few tens; the rest is for a busy machine.
    EXPECT_LT(Clock::now() - sent, std::chrono::seconds(5));
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal << "\n" << ended.err;
    const std::string metrics = folder_.read("out/metrics.jsonl");
    const auto steps = static_cast<std::int64_t>(lines_of(metrics).size());
    EXPECT_EQ(saved_step(), steps);
    EXPECT_NE(ended.out.find("stopped after step " + std::to_string(steps) + "; run the same command to go on"), std::string::npos)
        << ended.out;

    const std::string two_more = "steps=" + std::to_string(steps + 2);
    const Ended resumed = folder_.plimsoll({"train", "run.json", "--set", two_more});
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    const std::string expected = "resuming after step " + std::to_string(steps) + " from out/checkpoints/step-";
    EXPECT_NE(resumed.out.find(expected), std::string::npos) << resumed.out;
    EXPECT_NE(resumed.out.find("the newest valid checkpoint"), std::string::npos);
    EXPECT_TRUE(folder_.read("out/metrics.jsonl").starts_with(metrics));
    const auto continued = column(folder_.read("out/metrics.jsonl"), "loss");
    EXPECT_EQ(continued.size(), static_cast<std::size_t>(steps) + 2);

    EXPECT_EQ(folder_.plimsoll({"train", "run.json", "--set", two_more, "--set", "out=whole", "--fresh"}).exit_code, 0);
    EXPECT_EQ(column(folder_.read("whole/metrics.jsonl"), "loss"), continued);
  }
}

// As if a signal had come after that step, and the second start ends as if the first had not stopped.
TEST_F(Stop, AfterAGivenStep) {
  const auto train = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"train", "run.json", "--set", "steps=6", "--set", "checkpoint.every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return folder_.plimsoll(all);
  };
  const Ended first = train({"--until", "4"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(saved_step(), 4);
  EXPECT_EQ(column(folder_.read("out/metrics.jsonl"), "loss").size(), 4u);
  const Ended again = train({"--until", "4"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(saved_step(), 4);
  const Ended second = train({});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(train({"--set", "out=whole"}).exit_code, 0);
  EXPECT_EQ(column(folder_.read("out/metrics.jsonl"), "loss"), column(folder_.read("whole/metrics.jsonl"), "loss"));

  const Ended beyond = train({"--until", "7"});
  EXPECT_EQ(beyond.exit_code, 2);
  EXPECT_NE(beyond.err.find("--until is 7, but the run has 6 steps"), std::string::npos) << beyond.err;
}

// A save is in flight nearly all the time.
TEST_F(Stop, DuringASaveTheLastStepIsSaved) {
  for (int trial = 0; trial < 8; ++trial) {
    std::filesystem::remove_all(folder_.path("out"));
    Child child(plimsoll_command({"train", "run.json", "--set", "steps=1000000", "--set", "checkpoint.every=1"}), folder_.path());
    wait_for_lines(child, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(trial));
    child.send(SIGTERM);
    const Ended ended = child.wait();
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal << "\n" << ended.err;
    std::int64_t newest = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path("out/checkpoints"))) {
      EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
      newest = std::max(newest, static_cast<std::int64_t>(std::stoll(entry.path().filename().string().substr(5))));
    }
    EXPECT_EQ(newest, std::ssize(lines_of(folder_.read("out/metrics.jsonl"))));
  }
}

TEST_F(Stop, ASecondTrainingInTheSameFolderIsRefused) {
  Child child(endless(), folder_.path());
  wait_for_lines(child, 3);
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--fresh"}}) {
    std::vector<std::string> command{"train", "run.json"};
    command.insert(command.end(), more.begin(), more.end());
    const Ended second = folder_.plimsoll(command);
    EXPECT_EQ(second.exit_code, 2);
    EXPECT_NE(second.err.find("in use by another training"), std::string::npos) << second.err;
  }
  child.send(SIGTERM);
  EXPECT_EQ(child.wait().exit_code, 0);
  EXPECT_EQ(saved_step(), std::ssize(lines_of(folder_.read("out/metrics.jsonl"))));
}

TEST_F(Stop, TheSecondSignalEndsAtOnce) {
  Child child(endless(), folder_.path());
  wait_for_lines(child, 3);
  child.send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  child.send(SIGTERM);
  const Ended ended = child.wait();
  // Either it was quicker with its save, or the signal ended it; in both cases the next start finds its way.
  EXPECT_TRUE(ended.exit_code == 0 || ended.signal == SIGTERM) << ended.exit_code << " " << ended.signal;
  const Ended next = folder_.plimsoll({"train", "run.json", "--set", "steps=1"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
}

}  // namespace
}  // namespace plimsoll::tests

// What follows training, by the run's strategy: eval and generate on ranks of every kind, and models larger than a device may hold.
#include <gtest/gtest.h>

#include <cmath>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

using Arguments = std::vector<std::string>;

Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Trained once, on one rank; two layers and four heads, so that there is something to share out.
class Forward : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new RunFolder;
    const Ended ended = folder_->plimsoll(
        {"train", "run.json", "--set", "model.layers=2", "--set", "model.heads=4", "--set", "optimizer.lr=3e-2", "--set", "threads=1"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  static void TearDownTestSuite() { delete folder_; }

  static Ended run(const Arguments& arguments) { return folder_->plimsoll(arguments); }
  static Ended under_mpi(int ranks, const Arguments& arguments) {
    const Arguments launcher{"env", "LSAN_OPTIONS=detect_leaks=0", "mpirun", "--allow-run-as-root", "--oversubscribe",
                             "-n",  std::to_string(ranks)};
    return Child(with(launcher, plimsoll_command(arguments)), folder_->path()).wait();
  }
  static double loss_in(const Ended& ended) {
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    const Arguments lines = lines_of(ended.out);
    EXPECT_EQ(lines.size(), 1u) << "one rank prints: " << ended.out;
    return ended.exit_code == 0 ? base::parse_json(lines.at(0), "eval", {.strict = true}).at("loss").as_double() : NAN;
  }
  static void expect_refusal(const Arguments& arguments, int exit_code, const std::string& says) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, exit_code) << testing::PrintToString(arguments) << ended.out << ended.err;
    EXPECT_NE(ended.err.find(says), std::string::npos) << says << "\nin: " << ended.err;
    EXPECT_EQ(ended.err.find("plimsoll: "), ended.err.rfind("plimsoll: ")) << "said once: " << ended.err;
  }

  static RunFolder* folder_;
};

RunFolder* Forward::folder_ = nullptr;

const Arguments kEval{"eval", "out", "--json", "--set", "threads=1"};
const Arguments kWrite{"generate", "out", "--prompt", "the quick", "--tokens", "40", "--set", "threads=1"};

struct Layout {
  Arguments set;
  int ranks = 1;
  bool exact = true;  // nothing is summed in another order
};

const std::vector<Layout> kLayouts{
    {{"--set", "strategy.data=2", "--set", "strategy.zero=3"}, 2},
    {{"--set", "strategy.tensor=2"}, 2, false},
    {{"--set", "strategy.tensor=2", "--set", "strategy.sequence_parallel=true"}, 2, false},
    {{"--set", "strategy.pipe=2"}, 2},
    {{"--set", "strategy.pipe=2", "--set", "strategy.tensor=2"}, 4, false},
    {{"--set", "strategy.offload.params=host"}},
    {{"--set", "strategy.offload.params=disk", "--set", "limits.disk_path=."}},
    {{"--set", "strategy.tile=1024"}, 1, false},
    {{"--set", "strategy=auto"}},
    {{"--set", "strategy=auto", "--ranks", "2"}, 2, false},
};

TEST_F(Forward, LossesAreThoseOfOneRank) {
  const double alone = loss_in(run(kEval));
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(testing::PrintToString(layout.set));
    EXPECT_NEAR(loss_in(run(with(kEval, layout.set))), alone, layout.exact ? 1e-12 : 1e-5);
  }
  // The samples are dealt to any number of ranks, whatever a step's batch divides into.
  for (const char* ranks : {"2", "3", "5"}) EXPECT_NEAR(loss_in(run(with(kEval, {"--ranks", ranks}))), alone, 1e-12) << ranks;
}

TEST_F(Forward, TextIsThatOfOneRank) {
  const Ended alone = run(kWrite);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const Ended drawn = run(with(kWrite, {"--temperature", "1"}));
  EXPECT_NE(drawn.out, alone.out);
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(testing::PrintToString(layout.set));
    EXPECT_EQ(run(with(kWrite, layout.set)).out, alone.out);
    EXPECT_EQ(run(with(with(kWrite, {"--temperature", "1"}), layout.set)).out, drawn.out);
  }
}

TEST_F(Forward, ThreadsProcessesAndMpiAreTheSame) {
  for (const Layout& layout : kLayouts) {
    if (layout.ranks != 2 || layout.set.back() == "2") continue;
    SCOPED_TRACE(testing::PrintToString(layout.set));
    for (const Arguments& command : {with(kEval, layout.set), with(kWrite, layout.set)}) {
      const Ended threads = run(command);
      ASSERT_EQ(threads.exit_code, 0) << threads.err;
      const Ended processes = run(with(command, {"--processes"}));
      EXPECT_EQ(processes.exit_code, 0) << processes.err;
      EXPECT_EQ(processes.out, threads.out);
      if (!PLIMSOLL_BUILT_WITH_MPI) continue;
      const Ended mpi = under_mpi(2, command);
      EXPECT_EQ(mpi.exit_code, 0) << mpi.err;
      EXPECT_EQ(mpi.out, threads.out);
    }
  }
}

// What a run was trained with holds for what follows, and only what matters there.
TEST_F(Forward, TheRunsStrategyIsFollowed) {
  const RunFolder folder;
  const Ended trained = folder.plimsoll({"train", "run.json", "--set", "strategy.pipe=2", "--set", "strategy.recompute=full", "--set",
                                         "strategy.offload.optimizer=host", "--set", "strategy.offload.params=host"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Ended eval = folder.plimsoll({"eval", "out"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_NE(eval.out.find("data 1 x tensor 1 x pipe 2"), std::string::npos) << eval.out;
  EXPECT_NE(eval.out.find("weights in the host's memory"), std::string::npos) << eval.out;
  EXPECT_EQ(eval.out.find("optimizer"), std::string::npos) << eval.out;
  EXPECT_NE(eval.out.find("evaluate program"), std::string::npos) << eval.out;
  EXPECT_EQ(folder.plimsoll({"generate", "out", "--prompt", "the", "--tokens", "9"}).exit_code, 0);
}

TEST_F(Forward, WhatCannotBeDoneIsRefused) {
  expect_refusal(with(kEval, {"--set", "strategy.pipe=2", "--ranks", "3"}), 3, "give --ranks 2");
  expect_refusal(with(kEval, {"--set", "strategy.tensor=5"}), 3, "units");
  expect_refusal(with(kEval, {"--set", "strategy.pipe=7"}), 3, "7");
  expect_refusal(with(kEval, {"--ranks", "0"}), 2, "--ranks");
  expect_refusal(with(kEval, {"--set", "strategy.offload.params=disk"}), 2, "disk_path");
  expect_refusal(with(kEval, {"--set", "limits.device=1MiB"}), 3, "does not fit");
  expect_refusal(with(kWrite, {"--ranks", "2"}), 3, "one text has no samples");
  expect_refusal(with(kWrite, {"--ranks", "2", "--processes"}), 3, "one text has no samples");
  expect_refusal(
      with(kWrite, {"--set", "strategy.pipe=2", "--set", R"(strategy.stages=[{"blocks": 1, "data": 2}, {"blocks": 1, "data": 1}])"}), 3,
      "a text is one");
  expect_refusal(with(kWrite, {"--set", "strategy.embedding_rows=disk", "--set", "limits.disk_path=."}), 3, "\"whole\"");
}

// A model of 73 MiB that is trained, evaluated, made to write and exported in less.
class BeyondTheLimit : public testing::Test {
 protected:
  static constexpr std::int64_t kWeights = 76'000'000;
  static constexpr std::int64_t kLimit = std::int64_t{60} << 20;

  void expect_within(const Arguments& arguments) const {
    const Ended ended = folder_.plimsoll(arguments);
    EXPECT_EQ(ended.exit_code, 0) << testing::PrintToString(arguments) << ended.out << ended.err;
    EXPECT_LT(ended.most_resident, kLimit) << testing::PrintToString(arguments) << ended.out;
  }

  RunFolder folder_;
};

TEST_F(BeyondTheLimit, EverythingIsDoneUnderIt) {
  static_assert(kLimit < kWeights);
  folder_.write("run.json", R"({
    "model": {"family": "gpt2", "layers": 6, "width": 512, "heads": 8, "context": 32, "vocab": 256},
    "data": {"train": "train.txt", "valid": "valid.txt"},
    "batch": {"global": 1, "sequence": 16}, "optimizer": {"clip": 0},
    "strategy": {"recompute": "full", "prefetch": 1, "bucket": "1MB", "tile": "1MiB",
                 "offload": {"optimizer": "disk", "gradients": "disk", "params": "disk"}},
    "limits": {"device": "60MiB", "disk_path": "."}, "steps": 1, "eval": {"every": 0}, "threads": 1, "out": "out"})");
  expect_within({"train", "run.json"});
  expect_within({"eval", "out", "--batches", "2"});
  expect_within({"generate", "out", "--prompt", "the", "--tokens", "3"});
  expect_within({"export", "out", "model"});
  // With the weights on the device it does not fit; the nearest that does is named.
  const Ended refused = folder_.plimsoll({"eval", "out", "--set", "strategy.offload.params=none", "--batches", "2"});
  EXPECT_EQ(refused.exit_code, 3) << refused.out;
  EXPECT_NE(refused.err.find("\"params\": \"host\""), std::string::npos) << refused.err;
  // Whoever leaves it open gets it without asking, and the loss is the same.
  const Arguments eval{"eval", "out", "--batches", "2", "--json"};
  const Ended open = folder_.plimsoll(with(eval, {"--set", "strategy=auto"}));
  EXPECT_EQ(open.exit_code, 0) << open.err;
  const auto loss = [](const Ended& ended) { return base::parse_json(ended.out, "eval").at("loss").as_double(); };
  EXPECT_NEAR(loss(open), loss(folder_.plimsoll(eval)), 1e-5);
}

}  // namespace
}  // namespace plimsoll::tests

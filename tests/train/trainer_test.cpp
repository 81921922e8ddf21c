// The loop: events in order, evaluation where it is due, a stop when one is wanted, and refusals before any work.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "collectives/local/threads.h"
#include "config/config.h"
#include "io/posix_file_system.h"
#include "train/setup/nearest_fit.h"
#include "train/setup/setup.h"
#include "train/stored/weights.h"

namespace plimsoll::train {
namespace {

class Recorder final : public observe::Observer {
 public:
  void on(const observe::Event& event) override { events.push_back(event); }
  template <typename T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const observe::Event& event : events) {
      if (const T* one = std::get_if<T>(&event)) found.push_back(*one);
    }
    return found;
  }
  std::vector<observe::Event> events;
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() : folder_(std::filesystem::temp_directory_path() / ("plimsoll-trainer-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    std::string text;
    for (int line = 0; line < 200; ++line) text += "the quick brown fox jumps over the lazy dog\n";
    write("train.txt", text);
    write("valid.txt", text.substr(0, 1000));
  }
  ~TrainerTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, std::string_view text) { std::ofstream(folder_ / name, std::ios::binary) << text; }

  config::Run run(const std::vector<std::string>& overrides = {}) {
    const std::string text = R"({"model": {"family": "gpt2", "layers": 1, "width": 16, "heads": 2, "context": 32, "vocab": 256},
      "data": {"train": ")" + (folder_ / "train.txt").string() +
                             R"(", "valid": ")" + (folder_ / "valid.txt").string() + R"("},
      "batch": {"global": 4, "micro": 2, "sequence": 16}, "steps": 6, "eval": {"every": 3, "batches": 0}, "checkpoint": {"every": 2}, "threads": 2})";
    return config::parse_run(text, "test.json", overrides);
  }

  void expect_refusal(const config::Run& given, base::ErrorKind kind, std::string_view part) {
    try {
      Trainer trainer(given, context());
      trainer.round();
      FAIL() << "expected a refusal about " << part;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  TrainContext context() { return {.file_system = files_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_}; }

  std::filesystem::path folder_;
  io::PosixFileSystem files_;
  Recorder recorder_;
  observe::SystemClock clock_;
  std::atomic<bool> stop_{false};
};

TEST_F(TrainerTest, ReportsEveryStep) {
  Trainer trainer(run(), context());
  std::vector<std::int64_t> saved;
  trainer.run({.save = [&](Trainer& at) { saved.push_back(at.progress().steps_done); }});
  const std::vector<observe::StepDone> steps = recorder_.all<observe::StepDone>();
  ASSERT_EQ(steps.size(), 6u);
  for (std::size_t index = 0; index < steps.size(); ++index) {
    EXPECT_EQ(steps[index].step, static_cast<std::int64_t>(index) + 1);
    EXPECT_EQ(steps[index].evaluation.has_value(), index == 2 || index == 5);
    EXPECT_GT(steps[index].grad_norm, 0.0);
  }
  // 1000 bytes: 999 have a successor, the short tail included.
  EXPECT_EQ(steps[2].evaluation->tokens, 999);
  EXPECT_EQ(saved, (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(trainer.progress().cursor, 24);
}

TEST_F(TrainerTest, StopsWhenAskedAndSaves) {
  stop_ = true;
  Trainer trainer(run(), context());
  trainer.round();
  int saves = 0;
  trainer.run({.save = [&](Trainer&) { ++saves; }});
  EXPECT_EQ(trainer.progress().steps_done, 1);
  EXPECT_EQ(saves, 0);
}

// With a verdict, ten steps that change nothing; without one, at once. Nothing is saved meanwhile.
TEST_F(TrainerTest, StopsWhereNothingIsFiniteAnyMore) {
  for (const auto& [clip, steps] : {std::pair{"1", 11}, {"0", 2}}) {
    recorder_.events.clear();
    Trainer trainer(run({"optimizer.lr=1e30", fmt::format("optimizer.clip={}", clip), "steps=40", "checkpoint.every=2"}), context());
    int saves = 0;
    try {
      trainer.run({.save = [&](Trainer&) { ++saves; }});
      FAIL() << "expected a stop";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::other);
      EXPECT_NE(std::string(error.what()).find("nan"), std::string::npos) << error.what();
    }
    EXPECT_EQ(recorder_.all<observe::StepDone>().size(), static_cast<std::size_t>(steps));
    EXPECT_EQ(saves, 0);
  }
}

// A run that ends, or is told to, before there were too many of them neither saves what may be spoilt nor calls it done.
TEST_F(TrainerTest, EndsWithoutASaveWhereNothingIsFiniteAnyMore) {
  for (const auto& [steps, until] : {std::pair{4, 0}, {40, 4}}) {
    Trainer trainer(run({"optimizer.lr=1e30", "optimizer.clip=1", fmt::format("steps={}", steps), "checkpoint.every=0"}), context());
    int saves = 0;
    int settled = 0;
    try {
      trainer.run({.save = [&](Trainer&) { ++saves; }, .settle = [&](Trainer&) { ++settled; }, .until = until});
      FAIL() << "expected an error";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::other);
      EXPECT_NE(std::string(error.what()).find("3 steps up to step 4 whose loss"), std::string::npos) << error.what();
    }
    EXPECT_EQ(saves, 0);
    EXPECT_EQ(settled, 1);
  }
}

// Where numbers that are not finite come up is told by all ranks alike, after as many steps as the run says.
TEST_F(TrainerTest, NamesWhatIsNotFinite) {
  struct Spoilt {
    const char* parameter;
    float with;
    const char* words;
  };
  for (const Spoilt& spoilt :
       {Spoilt{"blocks.1.ffn.down.weight", 3e38f, "rank 1 met it first: [linear] gave"},
        Spoilt{"blocks.0.ffn.up.weight", std::nanf(""), "rank 0 met it first: [linear] read blocks.0.ffn.up.weight"}}) {
    std::mutex mutex;
    std::vector<std::string> told;
    std::vector<std::int64_t> steps;
    collectives::local::run_threads(2, [&](collectives::Transport& transport) {
      Recorder recorder;
      TrainContext own{.file_system = files_, .observer = recorder, .clock = clock_, .stop_wanted = stop_, .transport = &transport};
      Trainer trainer(run({"model.layers=2", "strategy.pipe=2", "limits.not_finite=3", "eval.every=0"}), own);
      write_parameters(trainer.session(), [&](const ParameterInfo& info, std::int64_t, std::span<float> rows) {
        const bool norm = info.name.find("norm.weight") != std::string::npos;
        std::fill(rows.begin(), rows.end(), info.name == spoilt.parameter ? spoilt.with : norm ? 1.0f : 0.5f);
      });
      std::string text = "nothing";
      try {
        trainer.run({.save = [](Trainer&) {}});
      } catch (const base::Error& error) {
        text = error.what();
      }
      const std::lock_guard lock(mutex);
      told.push_back(text);
      steps.push_back(trainer.progress().steps_done);
    });
    EXPECT_EQ(steps, (std::vector<std::int64_t>{3, 3}));
    for (const std::string& text : told) EXPECT_NE(text.find(spoilt.words), std::string::npos) << text;
  }
}

TEST_F(TrainerTest, RefusesBadDataBeforeAnyWork) {
  write("empty.txt", "");
  write("short.txt", "abc");
  expect_refusal(run({"data.train=\"" + (folder_ / "none.txt").string() + "\""}), base::ErrorKind::bad_input, "none.txt");
  expect_refusal(run({"data.train=\"" + (folder_ / "empty.txt").string() + "\""}), base::ErrorKind::bad_input, "empty");
  expect_refusal(run({"data.train=\"" + (folder_ / "short.txt").string() + "\""}), base::ErrorKind::bad_input, "short.txt");
  expect_refusal(run({"model.vocab=100"}), base::ErrorKind::bad_input, "100");
}

// A refusal names the nearest strategy that would do: each needs less of the device than the ones before it.
TEST_F(TrainerTest, TheNearestStrategyThatFitsIsNamed) {
  const SessionOptions options = session_options(run({"model.layers=8", "batch.micro=1"}), {});
  const base::Bytes all = plan_session(options).classes[0].arena[0];
  const auto nearest = [&](double share, base::Bytes host = {}) {
    return nearest_fit(options, {.device = base::Bytes{static_cast<std::int64_t>(share * static_cast<double>(all.count))},
                                 .reserve = {},
                                 .origin = "a limit",
                                 .host = host});
  };
  EXPECT_NE(nearest(0.97).find("With \"recompute\""), std::string::npos) << nearest(0.97);
  EXPECT_NE(nearest(0.5).find("\"optimizer\": \"host\""), std::string::npos) << nearest(0.5);
  const std::string little = nearest(0.5, base::Bytes{all.count * 6 / 10});
  EXPECT_NE(little.find("\"disk\""), std::string::npos) << little;
  EXPECT_NE(nearest(0.001).find("Use a smaller"), std::string::npos) << nearest(0.001);
}

// Whatever is not as the run has it is named, so that who writes it into the run file has what was tried.
TEST_F(TrainerTest, WhatIsNamedIsAllThatChanges) {
  SessionOptions options = session_options(
      run({"model.layers=8", "batch.micro=1", "strategy.recompute=full", "strategy.recompute_every=8", "strategy.bucket=1000"}), {});
  const auto arena = [](const SessionOptions& of) { return plan_session(of).classes[0].arena[0]; };
  SessionOptions single = options;
  single.strategy.recompute_every = 1;
  ASSERT_LT(arena(single), arena(options));
  const auto nearest = [&](base::Bytes device, base::Bytes reserve = {}) {
    return nearest_fit(options, {.device = device + reserve, .reserve = reserve, .origin = "a limit"});
  };
  EXPECT_EQ(nearest(arena(single)).find("With \"recompute_every\": 1 in \"strategy\" it would fit"), 0u) << nearest(arena(single));
  // What was measured for this plan may be a little more for another, which then does not fit.
  EXPECT_EQ(nearest(arena(single), base::Bytes{1}).find("With \"recompute_every\": 1 in"), std::string::npos);
  // Neither larger buckets than there are, nor a folder that nobody gave.
  options.strategy.offload.activations = {.host = 0.25, .disk = 0.0};
  const std::string little = nearest_fit(
      options, {.device = base::Bytes{arena(single).count / 2}, .reserve = {}, .origin = "a limit", .host = base::Bytes{100'000}});
  EXPECT_NE(little.find("\"params\": \"disk\", \"activations\": {\"host\": 0.25, \"disk\": 0}}"), std::string::npos) << little;
  EXPECT_NE(little.find("and a folder in \"limits.disk_path\" it would fit"), std::string::npos) << little;
  EXPECT_EQ(little.find("bucket"), std::string::npos) << little;
}

// No tier helps a device that cannot hold one weight: tiles do.
TEST_F(TrainerTest, TilesAreNamedForADeviceSmallerThanOneWeight) {
  const SessionOptions options = session_options(run({"model.width=128", "model.ffn=8192", "batch.micro=1", "batch.sequence=4"}), {});
  const base::Bytes weight{8192 * 128 * 4};
  const Capacity capacity{.device = weight, .reserve = {}, .origin = "a limit"};
  const std::string nearest = nearest_fit(options, capacity);
  EXPECT_NE(nearest.find("\"tile\": 262144, \"offload\": {\"optimizer\": \"host\""), std::string::npos) << nearest;
  SessionOptions tiled = options;
  const strategy::TierShare host{.host = 1.0};
  tiled.strategy.offload = {.optimizer = host, .gradients = host, .params = host, .activations = {}};
  tiled.strategy.recompute = strategy::Recompute::full;
  tiled.strategy.prefetch = 1;
  EXPECT_TRUE(why_too_large(plan_session(tiled), capacity));
  tiled.strategy.tile = base::Bytes{262144};
  EXPECT_FALSE(why_too_large(plan_session(tiled), capacity));
}

// Whatever its size: what cannot fit is told from what must lie where, and what comes and goes does so in thousands of pieces, not
// millions.
TEST_F(TrainerTest, TheNearestStrategyOfAHugeModelIsFoundInSeconds) {
  const SessionOptions options =
      session_options(run({"model.layers=128", "model.width=25600", "model.heads=160", "batch.micro=1", "limits.device=16GB"}), {});
  const auto nearest = [&](base::Bytes disk) {
    return nearest_fit(
        options,
        {.device = base::Bytes{500'000'000'000}, .reserve = {}, .origin = "a limit", .host = base::Bytes{1'000'000'000'000}, .disk = disk});
  };
  const auto start = std::chrono::steady_clock::now();
  const std::string on_disk = nearest({});
  EXPECT_NE(on_disk.find("\"params\": \"disk\""), std::string::npos) << on_disk;
  EXPECT_NE(on_disk.find("MB\""), std::string::npos) << on_disk;
  EXPECT_NE(nearest(base::Bytes{1'000'000'000'000}).find("Use a smaller"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// Nor does a refusal make plans that fetch every block for each of thousands of micro-batches: they take more memory than most runs.
TEST_F(TrainerTest, PlansOfTooManyFetchesAreNotTried) {
  SessionOptions options = session_options(run({"model.layers=1", "batch.micro=1", "batch.sequence=4"}), {});
  SessionOptions fetched = options;
  const strategy::TierShare host{.host = 1.0};
  fetched.strategy.offload = {.optimizer = host, .gradients = host, .params = host, .activations = {}};
  fetched.strategy.recompute = strategy::Recompute::full;
  const auto nearest = [&](std::int32_t micro_batches) {
    options.micro_batches = fetched.micro_batches = micro_batches;
    options.training.accumulates = fetched.training.accumulates = true;
    return nearest_fit(options, {.device = plan_session(fetched).classes[0].arena[0], .reserve = {}, .origin = "a limit"});
  };
  EXPECT_NE(nearest(8).find("\"params\": \"host\""), std::string::npos) << nearest(8);
  EXPECT_NE(nearest(8200).find("Use a smaller"), std::string::npos) << nearest(8200);
}

TEST_F(TrainerTest, RefusesWhatCannotRun) {
  expect_refusal(run({"limits.device=1MiB"}), base::ErrorKind::not_legal, "does not fit");
  expect_refusal(run({"precision=fp8", "strategy.tensor=2"}), base::ErrorKind::not_legal, "fp8");
  expect_refusal(run({"strategy.data=2"}), base::ErrorKind::not_legal, "2 ranks");
  expect_refusal(run({"strategy.tensor=2"}), base::ErrorKind::not_legal, "tensor");
}

TEST_F(TrainerTest, DocumentsStayApart) {
  Trainer trainer(run({"data.mask_documents=true", "data.document_end=10"}), context());
  EXPECT_FALSE(trainer.session().input("train", "segments", 0).empty());
  trainer.round();
  const auto segments = trainer.session().input("train", "segments", 0);
  EXPECT_NE(*std::max_element(segments.begin(), segments.end()), 0);
}

}  // namespace
}  // namespace plimsoll::train

// Saving a run where there is no room, and where it is stopped meanwhile: the policy is followed, and nothing is lost.
#include <fmt/ranges.h>

#include "support/refusal.h"
#include "train/checkpoint_runs.h"

namespace plimsoll::train {
namespace {

TEST_F(CheckpointsTest, AFullDiskEndsTheRunAndKeepsWhatIsThere) {
  for (const bool async : {true, false}) {
    const config::Run given = run({async ? "checkpoint.async=true" : "checkpoint.async=false"});
    const std::string name = async ? "beside" : "waited";
    files_.full_writes = 0;
    train(run({"steps=2", async ? "checkpoint.async=true" : "checkpoint.async=false"}), name);
    files_.full_writes = 1'000'000;
    try {
      Trainer trainer(given, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
      Checkpoints checkpoints(files_, given, (folder_ / name).string());
      const SaveContext context{.observer = recorder_, .stop_wanted = stop_, .make_durable = {}};
      EXPECT_EQ(checkpoints.resume(trainer).steps_done, 2);
      trainer.run(hooks_of(checkpoints, context));
      FAIL() << "expected a full disk";
    } catch (const io::IoError& error) {
      EXPECT_TRUE(error.disk_full()) << error.what();
    }
    const checkpoint::Search search = checkpoint::newest_valid(disk_, folder_ / name);
    ASSERT_TRUE(search.found);
    EXPECT_EQ(search.found->manifest.step, 2);
  }
}

TEST_F(CheckpointsTest, AFullDiskCanBeWaitedOut) {
  const auto undisturbed = train(run({"checkpoint.async=false"}), "undisturbed");
  for (const char* async : {"checkpoint.async=true", "checkpoint.async=false"}) {
    recorder_.notices.clear();
    files_.full_writes = 3;
    const auto found = train(run({"checkpoint.on_full_disk=retry", async}), async);
    EXPECT_FALSE(found.empty());
    EXPECT_EQ(found.front(), undisturbed.front()) << async;  // the newest
    ASSERT_GE(recorder_.notices.size(), 3u);
    EXPECT_NE(recorder_.notices[0].find("tries again"), std::string::npos) << recorder_.notices[0];
  }
}

TEST_F(CheckpointsTest, OfSeveralRanksAreTheSameBesideTrainingAndWaitedFor) {
  for (const char* zero : {"strategy.zero=0", "strategy.zero=1"}) {
    const std::vector<std::string> two{"strategy.data=2", "batch.micro=1", zero};
    const auto with = [&](const char* more) {
      std::vector<std::string> all = two;
      all.emplace_back(more);
      return run(all);
    };
    const std::string name = zero;
    const auto waited = train_two(with("checkpoint.async=false"), name + "waited");
    ASSERT_EQ(waited.size(), 6u);
    EXPECT_EQ(train_two(with("checkpoint.async=true"), name + "quick"), waited);
    files_.each_write = std::chrono::milliseconds(3);
    EXPECT_EQ(train_two(with("checkpoint.async=true"), name + "slow"), waited);
    files_.each_write = std::chrono::milliseconds(0);
  }
}

TEST_F(CheckpointsTest, OfSeveralRanksFollowThePolicyOnAFullDisk) {
  const std::vector<std::string> two{"strategy.data=2", "batch.micro=1", "steps=4"};
  files_.full_writes = 3;
  std::vector<std::string> retrying = two;
  retrying.emplace_back("checkpoint.on_full_disk=retry");
  EXPECT_FALSE(train_two(run(retrying), "retry").empty());
  EXPECT_TRUE(recorder_.noticed);
  files_.full_writes = 1'000'000;
  EXPECT_THROW(train_two(run(two), "stop"), base::Error);
  EXPECT_TRUE(checkpoint::list_steps(disk_, folder_ / "stop").empty());
  for (const io::Entry& entry : disk_.list(folder_ / "stop")) ADD_FAILURE() << "debris: " << entry.name;
}

TEST_F(CheckpointsTest, AStopDoesNotWaitForAnOlderSave) {
  const config::Run given = run();
  Trainer trainer(given, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
  Checkpoints checkpoints(files_, given, (folder_ / "out").string());
  const SaveContext context{.observer = recorder_, .stop_wanted = stop_, .make_durable = {}};
  trainer.round();
  files_.held = true;
  checkpoints.save(trainer, context);
  trainer.round();
  std::thread letter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    files_.held = false;
    files_.held.notify_all();
  });
  checkpoints.drop(trainer, context);
  letter.join();
  ASSERT_EQ(recorder_.notices.size(), 1u);
  EXPECT_NE(recorder_.notices[0].find("step 1 is given up for one of step 2"), std::string::npos) << recorder_.notices[0];
  EXPECT_TRUE(disk_.list(folder_ / "out").empty());
  checkpoints.drop(trainer, context);  // nothing is in flight
  checkpoints.save(trainer, context);
  checkpoints.settle(trainer, context);
  EXPECT_EQ(checkpoint::list_steps(disk_, folder_ / "out"), std::vector<std::int64_t>{2});
  ASSERT_EQ(recorder_.saves.size(), 1u);
}

// Whichever moment a stop comes at: one rank or two, the last step is saved, and nothing else is left.
TEST_F(CheckpointsTest, AStopAtAnyWriteSavesTheLastStep) {
  for (const int ranks : {1, 2}) {
    for (int at = 1; at <= 8; ++at) {
      const std::string name = fmt::format("{}-{}", ranks, at);
      std::atomic<int> writes{0};
      stop_ = false;
      recorder_.saves.clear();
      files_.each_write = std::chrono::milliseconds(2);
      files_.on_write = [&] { stop_ = stop_ || ++writes == at; };
      if (ranks == 1) {
        train(run({"steps=100000"}), name);
      } else {
        train_two(run({"steps=100000", "strategy.data=2", "batch.micro=1", "strategy.zero=1"}), name);
      }
      ASSERT_FALSE(recorder_.saves.empty());
      EXPECT_EQ(checkpoint::newest_valid(disk_, folder_ / name).found->manifest.step, recorder_.last_step) << name;
      for (const io::Entry& entry : disk_.list(folder_ / name)) EXPECT_TRUE(entry.name.starts_with("step-")) << entry.name;
    }
  }
}

TEST_F(CheckpointsTest, AStopEndsTheWaitForRoom) {
  files_.full_writes = 1'000'000;
  std::thread stopper([&] {
    while (!recorder_.noticed) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it waits for room
    stop_ = true;
  });
  EXPECT_THROW(train(run({"checkpoint.on_full_disk=retry", "checkpoint.retry_seconds=60"}), "stopped"), io::IoError);
  stopper.join();
}

// A run of six steps that keeps nine has six checkpoints to come, and needs room for three; one that keeps two never has more.
TEST_F(CheckpointsTest, RoomForAllCheckpointsIsAskedForBeforeTheFirstStep) {
  const auto prepare = [&](const config::Run& wanted, collectives::Transport* transport) {
    Trainer trainer(wanted, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_, .transport = transport});
    Checkpoints checkpoints(files_, wanted, (folder_ / "out").string());
    checkpoints.resume(trainer);
    return checkpoints.prepare(trainer, wanted.steps);
  };
  train(run({"steps=2"}), "whole");
  const std::int64_t each = checkpoint::open(disk_, folder_ / "whole" / checkpoint::step_name(2)).manifest.data_bytes();
  struct Case {
    std::vector<std::string> overrides;
    std::int64_t copies, needed;
  };
  for (const auto& [overrides, copies, needed] : std::vector<Case>{{{}, 6, 3},
                                                                   {{"checkpoint.keep=2"}, 3, 3},
                                                                   {{"checkpoint.keep=2", "checkpoint.every=4"}, 2, 2},
                                                                   {{"checkpoint.every=0"}, 1, 1}}) {
    files_.room = copies * each + checkpoint::kSpareRoom.count;
    EXPECT_EQ(prepare(run(overrides), nullptr), "");
    files_.room = needed * each + checkpoint::kSpareRoom.count;
    EXPECT_EQ(prepare(run(overrides), nullptr).empty(), copies == needed);
    files_.room -= 1;
    try {
      prepare(run(overrides), nullptr);
      ADD_FAILURE() << copies;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::not_legal);
      EXPECT_NE(std::string(error.what()).find(fmt::format("({} of ", copies)), std::string::npos) << error.what();
    }
    std::vector<std::string> waiting = overrides;
    waiting.push_back("checkpoint.on_full_disk=retry");
    EXPECT_NE(prepare(run(waiting), nullptr).find("is free"), std::string::npos);
    std::vector<std::string> shared = overrides;
    shared.push_back("strategy.data=2");
    EXPECT_THROW(collectives::local::run_threads(2, [&](collectives::Transport& transport) { prepare(run(shared), &transport); }),
                 base::Error);
  }
  files_.room = -1;
}

// A run that filled the disk and is to keep fewer from now on has room again, without a save that would need some first.
TEST_F(CheckpointsTest, WithoutRoomThoseNotToBeKeptGoBeforeTheFirstStep) {
  train(run({"steps=4"}), "out");
  const config::Run fewer = run({"checkpoint.keep=2"});
  for (const std::int64_t room : {std::int64_t{1} << 40, std::int64_t{0}}) {
    Trainer trainer(fewer, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
    Checkpoints checkpoints(files_, fewer, (folder_ / "out").string());
    EXPECT_EQ(checkpoints.resume(trainer).steps_done, 4);
    files_.room = room;
    if (room > 0) {
      checkpoints.prepare(trainer, fewer.steps);
      EXPECT_EQ(checkpoint::list_steps(disk_, folder_ / "out"), (std::vector<std::int64_t>{4, 3, 2, 1}));
    } else {
      EXPECT_THROW(checkpoints.prepare(trainer, fewer.steps), base::Error);
      EXPECT_EQ(checkpoint::list_steps(disk_, folder_ / "out"), (std::vector<std::int64_t>{4, 3}));
    }
  }
  files_.room = -1;
}

TEST_F(CheckpointsTest, FileInPlaceOfTheFolderIsFoundBeforeTheFirstStep) {
  std::ofstream(folder_ / "out") << "a file";
  const config::Run wanted = run();
  Trainer trainer(wanted, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
  Checkpoints checkpoints(files_, wanted, (folder_ / "out").string());
  checkpoints.resume(trainer);
  try {
    checkpoints.prepare(trainer, wanted.steps);
    ADD_FAILURE();
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("is not a folder"), std::string::npos) << error.what();
  }
}

// What goes with a checkpoint finds no room for a while: both ranks wait, and both try again.
TEST_F(CheckpointsTest, RecordsThatFindNoRoomFollowThePolicyToo) {
  for (const char* async : {"true", "false"}) {
    const config::Run wanted = run({"strategy.data=2", "checkpoint.on_full_disk=retry", fmt::format("checkpoint.async={}", async)});
    const std::string name = fmt::format("out-{}", async);
    std::atomic<int> fails{2};
    collectives::local::run_threads(2, [&](collectives::Transport& transport) {
      Recorder silent;
      Trainer trainer(wanted, {.file_system = disk_, .observer = silent, .clock = clock_, .stop_wanted = stop_, .transport = &transport});
      Checkpoints checkpoints(files_, wanted, (folder_ / name).string());
      checkpoints.resume(trainer);
      SaveContext context{.observer = silent, .stop_wanted = stop_, .make_durable = {}};
      if (transport.rank() == 0) {
        context.make_durable = [&] {
          if (fails > 0 && --fails >= 0) throw io::IoError("append to", folder_ / "log", ENOSPC);
        };
      }
      trainer.run(hooks_of(checkpoints, context));
    });
    EXPECT_EQ(fails, 0);
    EXPECT_EQ(checkpoint::list_steps(disk_, folder_ / name).front(), 6);
  }
}

}  // namespace
}  // namespace plimsoll::train

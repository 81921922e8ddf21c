// Saving a run: beside training or waited for, the checkpoints are the same; a full disk follows the policy.
#include "train/checkpoints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <fmt/ranges.h>

#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "collectives/local/threads.h"
#include "config/config.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "support/refusal.h"
#include "train/stored_model.h"
#include "train/weights.h"

namespace plimsoll::train {
namespace {

// Passes everything on; writing takes its time, and some writes find no room.
class HardFileSystem final : public io::FileSystem {
 public:
  std::chrono::microseconds each_write{0};
  std::atomic<int> full_writes{0};  // so many find the disk full
  std::atomic<bool> held{false};    // writes wait until it is false
  std::int64_t room = -1;           // what is said to be free, where it is not negative
  std::function<void()> on_write;

  void write_at(const io::OpenFile& file, std::int64_t offset, std::span<const std::byte> data) override {
    if (on_write) on_write();
    held.wait(true);
    std::this_thread::sleep_for(each_write);
    if (full_writes > 0 && --full_writes >= 0) throw io::IoError("write", file.path, ENOSPC);
    disk_.write_at(file, offset, data);
  }
  io::OpenFile open(const io::Path& path, io::OpenMode mode) override { return disk_.open(path, mode); }
  void close(const io::OpenFile& file) override { disk_.close(file); }
  std::int64_t size(const io::OpenFile& file) override { return disk_.size(file); }
  std::size_t read_at(const io::OpenFile& file, std::int64_t offset, std::span<std::byte> out) override {
    return disk_.read_at(file, offset, out);
  }
  void append(const io::OpenFile& file, std::span<const std::byte> data) override { disk_.append(file, data); }
  void sync(const io::OpenFile& file) override { disk_.sync(file); }
  io::Mapping map(const io::Path& path) override { return disk_.map(path); }
  void sync_directory(const io::Path& path) override { disk_.sync_directory(path); }
  void rename(const io::Path& from, const io::Path& to) override { disk_.rename(from, to); }
  void remove(const io::Path& path) override { disk_.remove(path); }
  void make_directory(const io::Path& path) override { disk_.make_directory(path); }
  std::vector<io::Entry> list(const io::Path& path) override { return disk_.list(path); }
  std::optional<io::Status> status(const io::Path& path) override { return disk_.status(path); }
  base::Bytes free_space(const io::Path& path) override { return room < 0 ? disk_.free_space(path) : base::Bytes{room}; }

 private:
  io::PosixFileSystem disk_;
};

class Recorder final : public observe::Observer {
 public:
  void on(const observe::Event& event) override {
    if (const auto* saved = std::get_if<observe::CheckpointSaved>(&event)) saves.push_back(*saved);
    if (const auto* notice = std::get_if<observe::Notice>(&event)) notices.push_back(notice->text);
    if (const auto* done = std::get_if<observe::StepDone>(&event)) last_step = done->step;
    noticed = !notices.empty();
  }
  std::int64_t last_step = 0;
  std::atomic<bool> noticed{false};
  std::vector<observe::CheckpointSaved> saves;
  std::vector<std::string> notices;
};

class CheckpointsTest : public testing::Test {
 protected:
  CheckpointsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "plimsoll-saves-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::string text;
    for (int line = 0; line < 200; ++line) text += "the quick brown fox jumps over the lazy dog\n";
    std::ofstream(folder_ / "train.txt", std::ios::binary) << text;
  }
  ~CheckpointsTest() override { std::filesystem::remove_all(folder_); }

  config::Run run(std::vector<std::string> overrides = {}) {
    const std::string text = R"({"model": {"family": "gpt2", "layers": 2, "width": 16, "heads": 2, "context": 32, "vocab": 256},
      "data": {"train": ")" + (folder_ / "train.txt").string() +
                             R"("}, "batch": {"global": 4, "micro": 2, "sequence": 16}, "steps": 6, "threads": 1,
      "checkpoint": {"every": 1, "keep": 9, "retry_seconds": 0.05}})";
    return config::parse_run(text, "test.json", overrides);
  }

  static Trainer::Hooks hooks_of(Checkpoints& checkpoints, const SaveContext& context) {
    return {.save = [&](Trainer& at) { checkpoints.save(at, context); },
            .poll = [&](Trainer& at) { checkpoints.poll(at, context); },
            .drop = [&](Trainer& at) { checkpoints.drop(at, context); },
            .settle = [&](Trainer& at) { checkpoints.settle(at, context); }};
  }

  // Trains a run, from where it was left, and returns the bytes of its checkpoints.
  std::vector<std::string> train(const config::Run& run, const std::string& name) {
    Trainer trainer(run, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
    Checkpoints checkpoints(files_, run, (folder_ / name).string());
    checkpoints.resume(trainer);
    const SaveContext context{.observer = recorder_, .stop_wanted = stop_, .make_durable = {}};
    trainer.run(hooks_of(checkpoints, context));
    std::vector<std::string> bytes;
    for (const std::int64_t step : checkpoint::list_steps(disk_, folder_ / name)) {
      const io::Path path = folder_ / name / checkpoint::step_name(step);
      bytes.push_back(io::read_text(disk_, path / "manifest.json") + io::read_text(disk_, path / "data-00000.bin"));
    }
    return bytes;
  }

  // The same by two ranks.
  std::vector<std::string> train_two(const config::Run& run, const std::string& name) {
    collectives::local::run_threads(2, [&](collectives::Transport& transport) {
      Recorder silent;
      Recorder& recorder = transport.rank() == 0 ? recorder_ : silent;
      Trainer trainer(run, {.file_system = disk_, .observer = recorder, .clock = clock_, .stop_wanted = stop_, .transport = &transport});
      Checkpoints checkpoints(files_, run, (folder_ / name).string());
      checkpoints.resume(trainer);
      const SaveContext context{.observer = recorder, .stop_wanted = stop_, .make_durable = {}};
      trainer.run(hooks_of(checkpoints, context));
    });
    return tensors_in(name);
  }

  // What each of the checkpoints holds, tensor by tensor, the newest first.
  std::vector<std::string> tensors_in(const std::string& name) {
    std::vector<std::string> bytes;
    for (const std::int64_t step : checkpoint::list_steps(disk_, folder_ / name)) {
      const checkpoint::Checkpoint found = checkpoint::open(disk_, folder_ / name / checkpoint::step_name(step));
      std::string all;
      for (const checkpoint::TensorRecord& tensor : found.manifest.tensors) {
        std::string data(static_cast<std::size_t>(tensor.bytes()), '\0');
        const checkpoint::TensorTarget target{tensor.name, tensor.dtype, tensor.shape, std::as_writable_bytes(std::span(data))};
        checkpoint::load(disk_, found, std::span(&target, 1), checkpoint::Unclaimed::ignore);
        all += tensor.name + data;
      }
      bytes.push_back(std::move(all));
    }
    return bytes;
  }

  std::filesystem::path folder_;
  io::PosixFileSystem disk_;
  HardFileSystem files_;
  Recorder recorder_;
  observe::SystemClock clock_;
  std::atomic<bool> stop_{false};
};

TEST_F(CheckpointsTest, AreTheSameBesideTrainingAndWaitedFor) {
  const auto waited = train(run({"checkpoint.async=false"}), "waited");
  ASSERT_EQ(waited.size(), 6u);
  EXPECT_EQ(train(run(), "quick"), waited);
  files_.each_write = std::chrono::milliseconds(4);  // so that updates have to wait for the writer
  recorder_.saves.clear();
  EXPECT_EQ(train(run(), "slow"), waited);
  ASSERT_EQ(recorder_.saves.size(), 6u);
  for (std::size_t index = 0; index < 6; ++index) EXPECT_EQ(recorder_.saves[index].step, static_cast<std::int64_t>(index) + 1);
}

// Optimizer state on disk is saved from there, also while the next step wants to write it, and goes back there.
TEST_F(CheckpointsTest, StateOnDiskIsSavedAndResumed) {
  train(run(), "kept");
  const auto kept = tensors_in("kept");
  ASSERT_EQ(kept.size(), 6u);
  const std::vector<std::string> on_disk{"strategy.offload.optimizer=disk", "limits.disk_path=" + folder_.string()};
  files_.each_write = std::chrono::milliseconds(2);
  train(run(on_disk), "disk");
  EXPECT_EQ(tensors_in("disk"), kept);

  std::vector<std::string> three = on_disk;
  three.emplace_back("steps=3");
  train(run(three), "resumed");
  {
    const config::Run rest = run(on_disk);
    Trainer trainer(rest, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
    Checkpoints checkpoints(files_, rest, (folder_ / "resumed").string());
    EXPECT_EQ(checkpoints.resume(trainer).steps_done, 3);
    trainer.run(hooks_of(checkpoints, {.observer = recorder_, .stop_wanted = stop_, .make_durable = {}}));
  }
  EXPECT_EQ(tensors_in("resumed"), kept);
  std::vector<std::string> two = on_disk;
  two.insert(two.end(), {"strategy.data=2", "strategy.zero=1"});
  train_two(run({"strategy.data=2", "strategy.zero=1"}), "two");
  train_two(run(two), "two-disk");
  EXPECT_EQ(tensors_in("two-disk"), tensors_in("two"));
}

// The records of a stored weight are saved as they are; whoever only reads weights gets what they decode to.
TEST_F(CheckpointsTest, StoredFormsAreSavedResumedAndRead) {
  std::vector<std::string> settings{"freeze=[\"blocks.0.*\"]", "freeze_as=int8", "precision=bf16", "model.width=64"};
  train(run(settings), "whole");
  const auto whole = tensors_in("whole");
  ASSERT_EQ(whole.size(), 6u);
  EXPECT_NE(whole[0].find("blocks.0.ffn.up.weight.int8"), std::string::npos);
  settings.emplace_back("steps=3");
  train(run(settings), "resumed");
  settings.back() = "steps=6";
  train(run(settings), "resumed");
  EXPECT_EQ(tensors_in("resumed"), whole);

  const config::Run same = run(settings);
  Trainer trainer(same, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
  Checkpoints checkpoints(files_, same, (folder_ / "whole").string());
  EXPECT_EQ(checkpoints.resume(trainer).steps_done, 6);
  const StoredModel stored = StoredModel::open(disk_, {.checkpoints = (folder_ / "whole").string()}, same);
  for (const ParameterInfo& info : parameters_of(trainer.session())) {
    ASSERT_TRUE(stored.holds(info.name)) << info.name;
    std::vector<float> values(static_cast<std::size_t>(info.shape.elements()));
    stored.load(info.name, info.shape, 0, values);
    EXPECT_EQ(values, read_parameter(trainer.session(), info.name)) << info.name;
  }

  const config::Run other = run({"freeze=[\"blocks.0.*\"]", "precision=bf16", "model.width=64"});
  Trainer unlike(other, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
  const std::string refused = tests::refusal([&] { Checkpoints(files_, other, (folder_ / "whole").string()).resume(unlike); });
  EXPECT_NE(refused.find("freeze_as int8"), std::string::npos) << refused;
}

// The name of the data may be the same and the data others: then the samples that come next are not those of the run that began.
TEST_F(CheckpointsTest, DataThatChangedUnderTheirNameAreNoticed) {
  train(run({"steps=2"}), "out");
  const auto other_data = [&] {
    const config::Run rest = run({"steps=4"});
    Trainer trainer(rest, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
    return Checkpoints(files_, rest, (folder_ / "out").string()).resume(trainer).other_data;
  };
  EXPECT_EQ(other_data(), "");
  std::string text = io::read_text(disk_, folder_ / "train.txt");
  std::reverse(text.begin(), text.end());
  io::replace_file(disk_, folder_ / "train.txt", io::as_bytes(text));
  EXPECT_NE(other_data().find("samples of digest"), std::string::npos) << other_data();
}

// With delayed scaling, what was seen before scales what comes next: a run that is interrupted must not forget it.
TEST_F(CheckpointsTest, EightBitRunsGoOnWithTheirHistories) {
  const std::vector<std::vector<std::string>> layouts{
      {}, {"strategy.data=2"}, {"strategy.tensor=2"}, {"strategy.data=2", "strategy.zero=2"}};
  for (const std::vector<std::string>& layout : layouts) {
    const std::string name = fmt::format("{}", fmt::join(layout, " "));
    SCOPED_TRACE(name);
    const auto train_to = [&](const char* steps, const std::string& folder) {
      std::vector<std::string> overrides{"model.width=32", "precision=fp8", "fp8.history=3", "checkpoint.every=3", steps};
      overrides.insert(overrides.end(), layout.begin(), layout.end());
      if (layout.empty()) {
        train(run(overrides), folder);
      } else {
        train_two(run(overrides), folder);
      }
    };
    train_to("steps=6", name + "whole");
    train_to("steps=3", name + "broken");
    train_to("steps=6", name + "broken");
    const std::vector<std::string> whole = tensors_in(name + "whole");
    ASSERT_EQ(whole.size(), 2u);
    EXPECT_NE(whole[0].find(".8bit.history"), std::string::npos);
    EXPECT_EQ(tensors_in(name + "broken"), whole);
  }
}

TEST_F(CheckpointsTest, EveryStoredTensorIsGuarded) {
  Trainer trainer(run(), {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
  const Snapshot snapshot = snapshot_of(trainer.session());
  std::size_t most = 0;
  for (const auto& [call, needed] : snapshot.needed_before) most = std::max(most, needed);
  EXPECT_EQ(most, snapshot.pieces.size());  // the last one is written by some call, and that call waits for all
  EXPECT_EQ(snapshot.pieces.size(), 3 * trainer.session().graph().parameters.size());
}

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

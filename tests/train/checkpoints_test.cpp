// Saving a run: beside training or waited for, the checkpoints are the same, and everything is in them.
#include <fmt/ranges.h>

#include "support/refusal.h"
#include "train/checkpoint_runs.h"
#include "train/stored/stored_model.h"
#include "train/stored/weights.h"

namespace plimsoll::train {
namespace {

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

}  // namespace
}  // namespace plimsoll::train

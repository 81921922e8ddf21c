// Power lost after any operation of a save: what is left is the old checkpoint or the new one, whole, in every state that
// the medium may be in; and the next save works and leaves no debris.
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/states.h"
#include "checkpoint/tree_file_system.h"
#include "support/io/faulty_file_system.h"
#include "support/io/recording_file_system.h"

namespace plimsoll::checkpoint {
namespace {

using io::CrashKind;

constexpr CrashKind kKinds[] = {CrashKind::killed, CrashKind::unsynced_lost, CrashKind::torn, CrashKind::reordered};
constexpr std::uint64_t kSeeds = 24;  // for the kinds that leave a choice

class CrashTest : public ::testing::Test {
 protected:
  void every_operation(SaveState save_state_so);

  io::Path folder() const { return temporary_.path() / "checkpoints"; }
  io::Path crashed() const { return temporary_.path() / "crashed"; }

  void SetUp() override {
    for (const std::int64_t step : {1, 2}) save_state(disk_, folder(), step);
  }

  // Runs `check` on the medium that each crash leaves; paths in it are relative to the recorded folder.
  using Check = std::function<void(const io::CrashState&, io::FileSystem& left)>;
  std::int64_t for_each_crash(const io::RecordingFileSystem& recording, const Check& check) {
    std::int64_t states = 0;
    for (std::int64_t after = 0; after <= recording.operations(); ++after) {
      for (const CrashKind kind : kKinds) {
        const bool one_outcome = kind == CrashKind::killed || kind == CrashKind::unsynced_lost;
        for (std::uint64_t seed = 0; seed < (one_outcome ? 1 : kSeeds); ++seed, ++states) {
          const io::CrashState state{after, kind, seed};
          SCOPED_TRACE(fmt::format("after {} operations, kind {}, seed {}", after, static_cast<int>(kind), seed));
          TreeFileSystem left(recording.tree_after(state));
          check(state, left);
        }
      }
    }
    return states;
  }

  void expect_no_debris(const io::Path& path) {
    for (const std::string& name : names_in(disk_, path)) EXPECT_TRUE(step_of(name)) << name;
  }

  MemoryFolder temporary_;
  io::PosixFileSystem disk_;
};

void CrashTest::every_operation(SaveState save_state_so) {
  io::RecordingFileSystem recording(disk_, folder());
  save_state_so(recording, folder(), 3);  // keeps 2 and removes 1
  std::set<std::int64_t> seen;
  const std::int64_t states = for_each_crash(recording, [&](const io::CrashState& state, io::FileSystem& left) {
    const std::int64_t step = newest_step(left, ".");
    EXPECT_TRUE(step == 2 || step == 3) << step;
    EXPECT_TRUE(step == 3 || state.after < recording.operations()) << "save() had returned";
    seen.insert(step);
  });
  EXPECT_EQ(seen, (std::set<std::int64_t>{2, 3}));
  EXPECT_GT(states, 2000);
  RecordProperty("states", std::to_string(states));
}

TEST_F(CrashTest, EveryOperationOfASave) { every_operation(save_state); }

TEST_F(CrashTest, EveryOperationOfASaveBesideTraining) { every_operation(save_state_beside); }

TEST_F(CrashTest, TheNextSaveWorksAndLeavesNoDebris) {
  io::RecordingFileSystem recording(disk_, folder());
  save_state(recording, folder(), 3);
  for (std::int64_t after = 0; after <= recording.operations(); ++after) {
    recording.replay({after, kKinds[after % 4], static_cast<std::uint64_t>(after)}, disk_, crashed());
    save_state(disk_, crashed(), 4);
    EXPECT_EQ(newest_step(disk_, crashed()), 4) << after;
    expect_no_debris(crashed());
    io::remove_tree(disk_, crashed());
  }
}

// Never is a checkpoint gone before the next one is safe on the medium, and a killed process leaves no half of one.
TEST_F(CrashTest, RetentionWaitsForTheCommit) {
  io::RecordingFileSystem recording(disk_, folder());
  save_state(recording, folder(), 3);
  for_each_crash(recording, [&](const io::CrashState& state, io::FileSystem& left) {
    std::int64_t valid = 0;
    const std::vector<std::int64_t> steps = list_steps(left, ".");
    for (const std::int64_t step : steps) {
      try {
        verify(left, open(left, step_name(step)));
        ++valid;
      } catch (const base::Error&) {  // half written, or half removed: not counted
      }
    }
    EXPECT_GE(valid, 2);
    EXPECT_TRUE(valid == std::ssize(steps) || state.kind != CrashKind::killed);
  });
}

TEST_F(CrashTest, TheFirstSaveOfARun) {
  const io::Path first = temporary_.path() / "other";
  disk_.make_directory(first);
  io::RecordingFileSystem recording(disk_, first);
  save_state(recording, first / "deep" / "checkpoints", 1);
  for_each_crash(recording, [&](const io::CrashState& state, io::FileSystem& left) {
    const std::int64_t step = newest_step(left, "deep/checkpoints");
    EXPECT_TRUE(step == -1 || step == 1) << step;
    EXPECT_TRUE(step == 1 || state.after < recording.operations());
  });
}

TEST_F(CrashTest, ReplacingADamagedOneOfTheSameStep) {
  overwrite(disk_, folder() / "step-00000002" / "data-00000.bin", "damaged");
  io::RecordingFileSystem recording(disk_, folder());
  save_state(recording, folder(), 2);
  for_each_crash(recording, [&](const io::CrashState& state, io::FileSystem& left) {
    const std::int64_t step = newest_step(left, ".");
    EXPECT_TRUE(step == 1 || step == 2) << step;
    EXPECT_TRUE(step == 2 || state.after < recording.operations());
  });
}

TEST_F(CrashTest, SeveralWriters) {
  const State state = state_at(3);
  std::vector<std::vector<TensorSource>> pieces(4);
  std::size_t next = 0;
  for (const TensorSource& source : sources_of(state)) pieces[next++ % 4].push_back(source);
  io::RecordingFileSystem recording(disk_, folder());
  begin(recording, folder(), 3);
  std::vector<Part> parts;
  for (std::size_t writer = 0; writer < 4; ++writer) {
    parts.push_back(write_part(recording, folder(), request_at(3), static_cast<std::int64_t>(writer), pieces[writer]));
  }
  commit(recording, folder(), request_at(3), parts);
  for_each_crash(recording, [&](const io::CrashState& crash, io::FileSystem& left) {
    const std::int64_t step = newest_step(left, ".");
    EXPECT_TRUE(step == 2 || step == 3) << step;
    EXPECT_TRUE(step == 3 || crash.after < recording.operations());
  });
}

// The process dies in the middle of an operation, on the real disk; then dies again while it cleans up.
TEST_F(CrashTest, KilledInsideAnyOperationAndAgainInTheNextSave) {
  const io::FileTree before = io::read_tree(disk_, folder());
  for (std::int64_t k = 1;; ++k) {
    io::write_tree(disk_, crashed(), before);
    io::FaultyFileSystem first(disk_, {.at = k, .kind = io::FaultKind::crash_midway});
    try {
      save_state(first, crashed(), 3);
    } catch (const io::CrashPoint&) {
    }
    io::FaultyFileSystem second(disk_, {.at = 1 + k * 7 % 40, .kind = io::FaultKind::crash_midway});
    const std::int64_t reached = newest_step(disk_, crashed());
    EXPECT_TRUE(reached == 2 || reached == 3) << k;
    try {
      save_state(second, crashed(), 4);
    } catch (const io::CrashPoint&) {
    }
    EXPECT_GE(newest_step(disk_, crashed()), reached) << k;
    save_state(disk_, crashed(), 5);
    EXPECT_EQ(newest_step(disk_, crashed()), 5) << k;
    expect_no_debris(crashed());
    io::remove_tree(disk_, crashed());
    if (!first.reached()) break;
  }
}

}  // namespace
}  // namespace plimsoll::checkpoint

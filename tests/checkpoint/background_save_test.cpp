// Saves beside training: the file holds what was there when the save began, one is in flight at most, and what goes wrong
// is told when the save is collected.
#include "checkpoint/background_save.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "checkpoint/states.h"
#include "support/io/faulty_file_system.h"

namespace plimsoll::checkpoint {
namespace {

class BackgroundSaveTest : public ::testing::Test {
 protected:
  MemoryFolder folder_;
  io::PosixFileSystem disk_;
};

TEST_F(BackgroundSaveTest, HoldsTheBitsOfItsBeginning) {
  for (std::int64_t step = 1; step <= 20; ++step) {
    EXPECT_EQ(save_state_beside(disk_, folder_.path(), step).path.filename(), step_name(step));
    EXPECT_EQ(newest_step(disk_, folder_.path()), step);
  }
}

TEST_F(BackgroundSaveTest, WritesTheSameBytesAsOneThatIsWaitedFor) {
  save_state(disk_, folder_.path() / "waiting", 7);
  save_state_beside(disk_, folder_.path() / "beside", 7);
  for (const char* name : {"data-00000.bin", "manifest.json"}) {
    EXPECT_EQ(io::read_text(disk_, folder_.path() / "waiting" / step_name(7) / name),
              io::read_text(disk_, folder_.path() / "beside" / step_name(7) / name));
  }
}

TEST_F(BackgroundSaveTest, PreparesFirst) {
  const State state = state_at(1);
  BackgroundSave saver(disk_, folder_.path());
  std::atomic<bool> prepared_first{false};
  saver.start(request_at(1), sources_of(state), [&] { prepared_first = list_steps(disk_, folder_.path()).empty(); });
  EXPECT_TRUE(saver.in_flight());
  EXPECT_TRUE(saver.collect(BackgroundSave::Wait::yes));
  EXPECT_TRUE(prepared_first);
  EXPECT_FALSE(saver.in_flight());
  EXPECT_FALSE(saver.collect(BackgroundSave::Wait::yes));
  saver.wait_until_read(1000);  // nothing is in flight
}

TEST_F(BackgroundSaveTest, CollectDoesNotWaitUnlessAsked) {
  const State state = state_at(1);
  BackgroundSave saver(disk_, folder_.path());
  std::atomic<bool> go{false};
  saver.start(request_at(1), sources_of(state), [&] { go.wait(false); });
  EXPECT_FALSE(saver.collect(BackgroundSave::Wait::no));
  EXPECT_TRUE(saver.in_flight());
  go = true;
  go.notify_all();
  EXPECT_TRUE(saver.collect(BackgroundSave::Wait::yes));
}

TEST_F(BackgroundSaveTest, AFailureIsToldOnceAndHoldsNobodyUp) {
  save_state(disk_, folder_.path(), 1);
  const State state = state_at(2);
  io::FaultyFileSystem faulty(disk_, {.at = 12, .kind = io::FaultKind::io_error});
  BackgroundSave saver(faulty, folder_.path());
  saver.start(request_at(2), sources_of(state));
  saver.wait_until_read(state.size());  // returns although not all were read
  EXPECT_THROW(saver.collect(BackgroundSave::Wait::yes), io::IoError);
  EXPECT_FALSE(saver.in_flight());
  EXPECT_EQ(newest_step(disk_, folder_.path()), 1);
  saver.start(request_at(3), sources_of(state));
  EXPECT_TRUE(saver.collect(BackgroundSave::Wait::yes));
}

// The writer is held before its first operation until `let` has been called.
class HeldSave {
 public:
  HeldSave(BackgroundSave& saver, const State& state) {
    saver.start(request_at(2), sources_of(state), [this] { go_.wait(false); });
  }
  void let() {
    go_ = true;
    go_.notify_all();
  }

 private:
  std::atomic<bool> go_{false};
};

TEST_F(BackgroundSaveTest, GivenUpItLeavesNothingAndTheNextOneGoesOn) {
  save_state(disk_, folder_.path(), 1);
  const State state = state_at(2);
  BackgroundSave saver(disk_, folder_.path());
  HeldSave held(saver, state);
  saver.give_up();
  held.let();
  EXPECT_THROW(saver.collect(BackgroundSave::Wait::yes), base::Error);
  EXPECT_EQ(disk_.list(folder_.path()).size(), 1u);
  EXPECT_EQ(newest_step(disk_, folder_.path()), 1);
  saver.start(request_at(2), sources_of(state));
  EXPECT_TRUE(saver.collect(BackgroundSave::Wait::yes));
  EXPECT_EQ(newest_step(disk_, folder_.path()), 2);
}

TEST_F(BackgroundSaveTest, AStopEndsTheWaitForTheWriter) {
  const State state = state_at(2);
  BackgroundSave saver(disk_, folder_.path());
  HeldSave held(saver, state);
  const std::atomic<bool> stop{true};
  std::thread letter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // several looks at `stop`
    held.let();
  });
  saver.wait_until_read(state.size(), &stop);
  letter.join();
  EXPECT_THROW(saver.collect(BackgroundSave::Wait::yes), base::Error);
  EXPECT_TRUE(disk_.list(folder_.path()).empty());
}

TEST_F(BackgroundSaveTest, IsWaitedForWhenItsOwnerGoes) {
  const State state = state_at(4);
  {
    BackgroundSave saver(disk_, folder_.path());
    saver.start(request_at(4), sources_of(state));
  }
  EXPECT_EQ(newest_step(disk_, folder_.path()), 4);
}

}  // namespace
}  // namespace plimsoll::checkpoint

// What bounds a step, on timelines drawn by hand.
#include <gtest/gtest.h>

#include "executor/core/bounds.h"

namespace plimsoll::executor {
namespace {

using plan::StreamKind;

plan::Program program_of(const std::vector<StreamKind>& kinds) {
  plan::Program program;
  for (const StreamKind kind : kinds) program.streams.edit().push_back({.kind = kind, .calls = {}});
  return program;
}

TimelineEvent call(std::int32_t stream, double begin, double end) {
  return {.name = "call", .kernel = "", .stream = stream, .begin = begin, .end = end};
}

TEST(Bounds, OfAStepThatComputesAllTheTime) {
  const plan::Program program = program_of({StreamKind::compute, StreamKind::host_in});
  const StepBounds bounds = bounds_of(program, {{call(0, 0.0, 1.0), call(0, 1.0, 2.0), call(1, 0.5, 1.5)}});
  EXPECT_DOUBLE_EQ(bounds.seconds, 2.0);
  EXPECT_DOUBLE_EQ(bounds.idle, 0.0);
  EXPECT_EQ(bounds.bounded_by(), StreamKind::compute);
  ASSERT_EQ(bounds.uses.size(), 2u);
  EXPECT_DOUBLE_EQ(bounds.uses[1].busy, 1.0);
  EXPECT_DOUBLE_EQ(bounds.uses[1].waited_for, 0.0);
}

// The device computes for one second; then the host updates for two, of which a copy covers the last half and a half more.
TEST(Bounds, OfAStepThatWaitsForTheHost) {
  const plan::Program program = program_of({StreamKind::compute, StreamKind::host_in, StreamKind::host_compute});
  Timeline timeline{{call(0, 0.0, 1.0), call(2, 1.0, 2.0), call(2, 2.0, 3.0), call(1, 2.5, 3.5)}};
  timeline.events.push_back({.name = "linear", .kernel = "linear.lt", .stream = 0, .begin = 0.0, .end = 9.0});  // not a call
  const StepBounds bounds = bounds_of(program, timeline);
  EXPECT_DOUBLE_EQ(bounds.seconds, 3.5);
  EXPECT_DOUBLE_EQ(bounds.idle, 2.5);
  EXPECT_EQ(bounds.bounded_by(), StreamKind::host_compute);
  ASSERT_EQ(bounds.uses.size(), 3u);
  EXPECT_EQ(bounds.uses[1].kind, StreamKind::host_compute);
  EXPECT_DOUBLE_EQ(bounds.uses[1].waited_for, 2.0);
  EXPECT_DOUBLE_EQ(bounds.uses[2].waited_for, 1.0);
  EXPECT_EQ(to_string(bounds),
            "a step of 3500.0 ms: the device 1000.0 ms, the host's processor 2000.0 ms (2000.0 while the device waits), the link to the "
            "device 1000.0 ms (1000.0 while the device waits); the host's processor bounds it, and the device computes for 29% of it");
}

// Calls that overlap on the streams of one kind count once.
TEST(Bounds, CountMomentsNotCalls) {
  const plan::Program program = program_of({StreamKind::compute, StreamKind::disk_in, StreamKind::disk_in});
  const StepBounds bounds = bounds_of(program, {{call(0, 3.0, 4.0), call(1, 0.0, 2.0), call(2, 1.0, 3.5)}});
  EXPECT_DOUBLE_EQ(bounds.uses[1].busy, 3.5);
  EXPECT_DOUBLE_EQ(bounds.uses[1].waited_for, 3.0);
  EXPECT_EQ(bounds.bounded_by(), StreamKind::disk_in);
}

// What brings rows from the disk and takes them back is part of the step, and nothing is computed meanwhile.
TEST(Bounds, CountTheProgramsAroundTheStep) {
  const plan::Program program = program_of({StreamKind::compute});
  const StepBounds bounds =
      bounds_of(program, {.events = {call(0, 0.0, 1.0)}, .around = {{"fetch_rows", true, 3.0}, {"store_rows", false, 0.5}}});
  EXPECT_DOUBLE_EQ(bounds.seconds, 4.5);
  EXPECT_DOUBLE_EQ(bounds.idle, 3.5);
  EXPECT_EQ(bounds.bounded_by(), StreamKind::disk_in);
  ASSERT_EQ(bounds.uses.size(), 3u);
  EXPECT_DOUBLE_EQ(bounds.uses[1].waited_for, 3.0);
  EXPECT_DOUBLE_EQ(bounds.uses[2].waited_for, 0.5);
}

}  // namespace
}  // namespace plimsoll::executor

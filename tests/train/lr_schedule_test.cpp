#include "train/lr_schedule.h"

#include <gtest/gtest.h>

namespace plimsoll::train {
namespace {

config::Run run_with(config::LrScheduleType type) {
  config::Run run;
  run.lr = 2.0;
  run.steps = 100;
  run.lr_schedule.type = type;
  run.lr_schedule.warmup = 10;
  run.lr_schedule.min_ratio = 0.1;
  run.lr_schedule.decay = 20;
  return run;
}

TEST(LrSchedule, WarmsUpLinearly) {
  for (const auto type :
       {config::LrScheduleType::constant, config::LrScheduleType::linear, config::LrScheduleType::cosine, config::LrScheduleType::wsd}) {
    const config::Run run = run_with(type);
    EXPECT_DOUBLE_EQ(learning_rate(run, 1), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(run, 5), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(run, 10), 2.0);
  }
}

TEST(LrSchedule, FallsAsItsNameSays) {
  EXPECT_DOUBLE_EQ(learning_rate(run_with(config::LrScheduleType::constant), 100), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(run_with(config::LrScheduleType::linear), 55), 2.0 * 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(run_with(config::LrScheduleType::linear), 100), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(run_with(config::LrScheduleType::cosine), 55), 2.0 * 0.55);
  EXPECT_NEAR(learning_rate(run_with(config::LrScheduleType::cosine), 100), 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(run_with(config::LrScheduleType::wsd), 80), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(run_with(config::LrScheduleType::wsd), 90), 2.0 * 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(run_with(config::LrScheduleType::wsd), 100), 0.2);
}

// The numbers are those of DeepSpeed's WarmupLR, WarmupDecayLR and WarmupCosineLR with the same settings (their iteration
// counted so that the first update is number 1).
TEST(LrSchedule, WarmsUpByTheLogarithm) {
  config::Run run = run_with(config::LrScheduleType::constant);
  run.lr_schedule.warmup_shape = config::WarmupShape::log;
  EXPECT_DOUBLE_EQ(learning_rate(run, 1), 0.0);
  EXPECT_DOUBLE_EQ(learning_rate(run, 2), 2.0 * 0.30102999566398114);
  EXPECT_DOUBLE_EQ(learning_rate(run, 9), 2.0 * 0.95424250943932487);
  EXPECT_DOUBLE_EQ(learning_rate(run, 10), 2.0);
  run.lr_schedule.warmup_from = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(run, 1), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(run, 2), 2.0 * (0.5 + 0.5 * 0.30102999566398114));
}

TEST(LrSchedule, TheFallMayEndBeforeTheRun) {
  config::Run run = run_with(config::LrScheduleType::linear);
  run.lr_schedule.end = 60;
  EXPECT_DOUBLE_EQ(learning_rate(run, 35), 2.0 * 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(run, 60), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(run, 90), 0.2);
}

TEST(LrSchedule, GoesStraightFromPointToPoint) {
  config::Run run;
  run.lr = 2.0;
  run.lr_schedule.type = config::LrScheduleType::points;
  run.lr_schedule.points = {{2, 0.5}, {10, 1.0}, {20, 0.0}};
  EXPECT_DOUBLE_EQ(learning_rate(run, 1), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(run, 6), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(run, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(run, 15), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(run, 99), 0.0);
}

}  // namespace
}  // namespace plimsoll::train

// Whole-run answers against closed forms, a scan of intervals, and failures drawn at random.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "planner/whole_run.h"

namespace plimsoll::tests {
namespace {

TEST(WholeRun, WithoutFailuresIsArithmetic) {
  const planner::WholeRun run =
      planner::whole_run(300e9, 1e6, 2.0, 512, {.device_hour = 2.0, .watts = 500.0, .overhead = 1.2, .kg_per_kwh = 0.5});
  EXPECT_EQ(run.steps, 300'000);
  EXPECT_DOUBLE_EQ(run.wall_seconds, 600'000.0);
  EXPECT_NEAR(run.device_hours, 600'000.0 / 3600.0 * 512.0, 1e-6);
  EXPECT_NEAR(run.kwh, run.device_hours * 0.6, 1e-6);
  EXPECT_NEAR(run.kg_co2, run.kwh * 0.5, 1e-6);
  EXPECT_NEAR(run.money, run.device_hours * 2.0, 1e-6);
  EXPECT_EQ(run.effective_share, 1.0);
}

TEST(WholeRun, TheIntervalIsTheBestOfAll) {
  for (const double between : {600.0, 3600.0, 86400.0}) {
    for (const double save : {1.0, 30.0, 300.0}) {
      const double best = planner::best_interval(between, save);
      const double least = planner::seconds_per_second(between, best, save, 60.0);
      for (double interval = 0.02 * best; interval < 20.0 * best; interval *= 1.1)
        EXPECT_GE(planner::seconds_per_second(between, interval, save, 60.0), least * (1.0 - 1e-9));
      // Young's first-order rule holds where saves are short beside the time between failures.
      const bool is_short = save < between / 1000.0;
      EXPECT_NEAR(best / std::sqrt(2.0 * save * between), 1.0, is_short ? 0.05 : 1.0);
    }
  }
}

// Failures drawn at random over many intervals take what the formula says.
TEST(WholeRun, FailuresTakeWhatTheFormulaSays) {
  constexpr double kBetween = 1000.0;
  constexpr double kInterval = 300.0;
  constexpr double kSave = 20.0;
  constexpr double kRestart = 50.0;
  constexpr int kIntervals = 200'000;
  std::uint32_t drawn = 0;
  const auto until_failure = [&] {
    const base::RandomBlock block = base::philox({drawn++, 0, 0, 0}, base::random_key(7, 1));
    return -kBetween * std::log((static_cast<double>(block[0]) + 0.5) / 4294967296.0);
  };
  double clock = 0.0;
  for (int interval = 0; interval < kIntervals; ++interval) {
    for (bool restarting = false;; restarting = true) {
      if (restarting) {
        for (double failure = until_failure(); failure < kRestart; failure = until_failure()) clock += failure;
        clock += kRestart;
      }
      const double failure = until_failure();
      if (failure >= kInterval + kSave) break;
      clock += failure;
    }
    clock += kInterval + kSave;
  }
  EXPECT_NEAR(clock / (kIntervals * kInterval) / planner::seconds_per_second(kBetween, kInterval, kSave, kRestart), 1.0, 0.01);
}

}  // namespace
}  // namespace plimsoll::tests

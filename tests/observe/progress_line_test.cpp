#include "observe/progress_line.h"

#include <gtest/gtest.h>

namespace plimsoll::observe {
namespace {

class ProgressLineTest : public ::testing::Test {
 protected:
  ProgressLine make(const ProgressOptions& options) {
    return ProgressLine([this](std::string_view text) { writes_.emplace_back(text); }, clock_, options);
  }
  std::string all() const {
    std::string text;
    for (const std::string& piece : writes_) text += piece;
    return text;
  }

  ManualClock clock_;
  std::vector<std::string> writes_;
};

StepDone at_step(std::int64_t step) { return {.step = step, .loss = 2.5, .tokens_per_second = 12345}; }

TEST_F(ProgressLineTest, PlainLinesComeEverySoManySeconds) {
  ProgressLine line = make({.plain_every_seconds = 10.0});
  line.on(RunStarted{.first_step = 1, .last_step = 100});
  for (int step = 1; step <= 30; ++step) {
    clock_.advance(1.0);
    line.on(at_step(step));
  }
  ASSERT_EQ(writes_.size(), 3u);  // steps 1, 11, 21
  EXPECT_EQ(writes_[1], "step 11/100  loss 2.5000  12.3k tokens/s  1m 29s left\n");
  line.on(RunEnded{.step = 30});
  EXPECT_EQ(all().substr(all().rfind("step")), "step 30/100  loss 2.5000  12.3k tokens/s  1m 10s left\n");
}

TEST_F(ProgressLineTest, PlainLinesComeEverySoManySteps) {
  ProgressLine line = make({.plain_every_seconds = 0.0, .plain_every_steps = 4});
  line.on(RunStarted{.first_step = 1, .last_step = 10});
  for (int step = 1; step <= 10; ++step) line.on(at_step(step));
  line.on(RunEnded{.step = 10});
  ASSERT_EQ(writes_.size(), 4u);  // 1, 5, 9, 10
  EXPECT_NE(writes_[3].find("step 10/10"), std::string::npos);
  EXPECT_NE(writes_[3].find("done\n"), std::string::npos);
  EXPECT_EQ(all().find('\x1b'), std::string::npos);
  EXPECT_EQ(all().find('\r'), std::string::npos);
}

TEST_F(ProgressLineTest, TerminalRedrawsOneLineAndNoticesScroll) {
  ProgressLine line = make({.terminal = {.interactive = true, .color = false, .columns = 200}});
  line.on(RunStarted{.first_step = 1, .last_step = 1000});
  for (int step = 1; step <= 100; ++step) {
    clock_.advance(0.01);
    line.on(at_step(step));
  }
  EXPECT_GE(writes_.size(), 9u);  // ten times a second at most
  EXPECT_LE(writes_.size(), 11u);
  for (const std::string& piece : writes_) {
    EXPECT_EQ(piece.rfind("\r\x1b[K", 0), 0u);
    EXPECT_EQ(piece.find('\n'), std::string::npos);
  }
  writes_.clear();
  line.on(Notice{.level = Notice::Level::warning, .text = "disk is slow"});
  EXPECT_EQ(all(), "\r\x1b[Kwarning: disk is slow\n");
  writes_.clear();
  line.on(CheckpointSaved{.step = 100, .path = "runs/first/100", .seconds = 0.5});
  EXPECT_EQ(all(), "saved runs/first/100 (0.50 s)\n");
  clock_.advance(1.0);
  line.on(at_step(101));
  writes_.clear();
  line.on(RunEnded{.step = 101});
  EXPECT_EQ(all(), "\n");
}

TEST_F(ProgressLineTest, NarrowTerminalsNeverWrap) {
  for (int columns = 1; columns < 80; ++columns) {
    writes_.clear();
    ProgressLine line = make({.terminal = {.interactive = true, .color = false, .columns = columns}});
    line.on(RunStarted{.first_step = 1, .last_step = 1000});
    line.on(at_step(1));
    EXPECT_LE(writes_[0].size() - 4, static_cast<std::size_t>(std::max(1, columns - 1)));
  }
}

TEST_F(ProgressLineTest, ColorOnlyWhenAllowed) {
  EXPECT_TRUE(terminal_from(true, "", "xterm", 80).color);
  EXPECT_FALSE(terminal_from(true, "1", "xterm", 80).color);
  EXPECT_TRUE(terminal_from(true, "1", "xterm", 80).interactive);
  EXPECT_FALSE(terminal_from(true, "", "dumb", 80).interactive);
  EXPECT_FALSE(terminal_from(false, "", "xterm", 80).color);
  EXPECT_EQ(terminal_from(true, "", "xterm", 0).columns, 80);
  ProgressLine line = make({.terminal = {.interactive = true, .color = true, .columns = 200}});
  line.on(RunStarted{.first_step = 1, .last_step = 2});
  line.on(at_step(1));
  EXPECT_NE(all().find("\x1b[1mloss 2.5000\x1b[0m"), std::string::npos);
}

TEST_F(ProgressLineTest, EvaluationsAndSkippedStepsAreNamed) {
  ProgressLine line = make({.plain_every_seconds = 1000.0});
  line.on(RunStarted{.first_step = 1, .last_step = 50});
  line.on(at_step(1));
  line.on(at_step(2));
  StepDone evaluated = at_step(3);
  evaluated.evaluation = Evaluation{.loss = 3.125};
  line.on(evaluated);
  StepDone skipped = at_step(4);
  skipped.skipped = true;
  line.on(skipped);
  ASSERT_EQ(writes_.size(), 3u);
  EXPECT_NE(writes_[1].find("eval 3.1250"), std::string::npos);
  EXPECT_NE(writes_[2].find("skipped"), std::string::npos);
}

TEST(ProgressText, DurationsAndRates) {
  EXPECT_EQ(duration_text(0.2), "0s");
  EXPECT_EQ(duration_text(59.6), "1m 00s");
  EXPECT_EQ(duration_text(3725), "1h 02m");
  EXPECT_EQ(duration_text(90000), "1d 01h");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(rate_text(987.4), "987");
  EXPECT_EQ(rate_text(999.9), "1.00k");
  EXPECT_EQ(rate_text(4.56e6), "4.56M");
}

}  // namespace
}  // namespace plimsoll::observe

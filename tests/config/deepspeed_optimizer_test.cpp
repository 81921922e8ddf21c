// DeepSpeed's optimizers and learning rate schedules: what they become, and how they differ.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "config/deepspeed_runs.h"

namespace plimsoll::config {
namespace {

TEST(DeepSpeed, LeanStates) {
  const config::Run run = run_of(R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}})");
  EXPECT_EQ(run.optimizer.master, model::Master::none);
  EXPECT_EQ(run.optimizer.moments, model::Moments::bf16);
  EXPECT_EQ(run_of(R"({"bf16": {"enabled": true, "bf16_optimizer_states": false}})").optimizer.moments, model::Moments::f32);
}

// As in DeepSpeed's onebit/adam.py and onebit/zoadam.py: the decay is added to the update, behind the averages.
TEST(DeepSpeed, OneBitAdamsDecayApartFromTheGradient) {
  for (std::string_view type : {"OneBitAdam", "ZeroOneAdam"}) {
    const config::Run run =
        run_of(fmt::format(R"({{"optimizer": {{"type": "{}", "params": {{"weight_decay": 0.01, "freeze_step": 9}}}}}})", type));
    EXPECT_EQ(run.optimizer.rule->name, "adamw") << type;
    EXPECT_EQ(run.optimizer.weight_decay, 0.01);
    EXPECT_TRUE(says(deepspeed_warning(run), "adamw: gradients are sent whole instead of as single bits")) << deepspeed_warning(run);
  }
}

TEST(DeepSpeed, TheOneCycleAndTheRangeTestArePoints) {
  const config::Run run =
      run_of(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.4, "cycle_first_step_size": 10,
      "cycle_momentum": false}}})");
  EXPECT_EQ(run.lr, 0.4);
  EXPECT_EQ(run.lr_schedule.points, (std::vector<LrPoint>{{0, 0.25}, {10, 1.0}, {20, 0.25}}));
  const config::Run range =
      run_of(R"({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_min_lr": 0.5, "lr_range_test_step_size": 100}}})",
             R"({"steps": 300})");
  EXPECT_EQ(range.lr, 2.0);
  EXPECT_EQ(range.lr_schedule.points, (std::vector<LrPoint>{{0, 0.25}, {300, 1.0}}));
}

// As DeepSpeed 0.19's WarmupDecayLR does with the same settings.
TEST(DeepSpeed, ADecayingScheduleHasItsOwnPeakAndFallsToWhereItRoseFrom) {
  const std::string optimizer = R"("optimizer": {"type": "AdamW", "params": {"lr": 5e-4}})";
  const auto with = [&](const std::string& params, const std::string& run = "{}") {
    return run_of("{" + optimizer + R"(, "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 25)" + params + "}}}", run);
  };
  EXPECT_EQ(with("").lr, 1e-3);
  EXPECT_TRUE(says(explain(with("")), "! optimizer.params.lr"));
  EXPECT_EQ(with(R"(, "warmup_max_lr": "auto")").lr, 5e-4);
  EXPECT_EQ(with(R"(, "warmup_max_lr": 2e-3)").lr, 2e-3);
  EXPECT_EQ(with("", R"({"optimizer": {"lr": 5e-4}})").lr, 5e-4);
  const config::Run lifted = with(R"(, "warmup_max_lr": 2e-3, "warmup_min_lr": 1e-3)");
  EXPECT_EQ(lifted.lr_schedule.warmup_from, 0.5);
  EXPECT_EQ(lifted.lr_schedule.min_ratio, 0.5);
  EXPECT_EQ(with("").lr_schedule.min_ratio, 0.0);
}

// The rule and its settings come from the table of rules; what is left out is as there.
TEST(DeepSpeed, LionAndRmsprop) {
  const config::Run lion = run_of(R"({"optimizer": {"type": "FusedLion", "params": {"lr": 1e-4, "betas": [0.95, 0.98]}}})");
  EXPECT_EQ(lion.optimizer.rule->name, "lion");
  EXPECT_EQ(lion.optimizer.number("beta1"), 0.95);
  EXPECT_EQ(lion.optimizer.number("beta2"), 0.98);
  EXPECT_EQ(lion.optimizer.weight_decay, 0.0);
  const config::Run rmsprop = run_of(R"({"optimizer": {"type": "RMSprop", "params": {"alpha": 0.9, "momentum": 0.5}}})");
  EXPECT_EQ(rmsprop.optimizer.rule->name, "rmsprop");
  EXPECT_EQ(rmsprop.lr, 1e-2);
  EXPECT_EQ(rmsprop.optimizer.number("alpha"), 0.9);
  EXPECT_EQ(rmsprop.optimizer.number("momentum"), 0.5);
  EXPECT_EQ(rmsprop.optimizer.number("eps"), 1e-8);
}

}  // namespace
}  // namespace plimsoll::config

// Pipelines whose stages have data and tensor degrees of their own: PipeDream's 2-1-1 and the like. A stage's data ranks take its
// micro-batches in turn.
#include <gtest/gtest.h>

#include "ranks/compare.h"
#include "ranks/layouts.h"
#include "strategy/legality.h"
#include "support/refusal.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;
using strategy::Stage;

struct Case {
  std::string name;
  std::vector<Stage> stages;
  std::string schedule = "1f1b";
  std::int64_t zero = 0;
  Family family = families::gpt2();
  Precision precision = Precision::f32;
  bool tied = false;
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

Task task_of(const Case& each) {
  Task task{.model = small_model(each.family), .precision = each.precision, .samples = 12, .steps = 3};
  task.model.layers = 4;
  task.model.tied = each.tied;
  task.model.kv_heads = 4;
  return task;
}

Layout layout_of(const Case& each) {
  Layout layout{.strategy = {}, .micro = 1};
  layout.strategy.pipe = static_cast<std::int64_t>(each.stages.size());
  layout.strategy.schedule = each.schedule;
  layout.strategy.zero = each.zero;
  layout.strategy.partition = strategy::StagePartition::listed;
  layout.strategy.stages = each.stages;
  return layout;
}

Outcome alone_of(const Task& task) { return train(task, {.strategy = {}, .micro = 3}); }

class OwnDegrees : public testing::TestWithParam<Case> {};

TEST_P(OwnDegrees, AreOneRank) {
  const Case& each = GetParam();
  const Task task = task_of(each);
  const Layout layout = layout_of(each);
  const Outcome found = train(task, layout);
  expect_close(found, alone_of(task), tolerance(each.precision));
  EXPECT_EQ(found.sent, found.predicted);
}

const std::vector<Stage> kTwoOneOne{{.blocks = 2, .data = 2}, {.blocks = 1}, {.blocks = 1}};

INSTANTIATE_TEST_SUITE_P(
    Layouts, OwnDegrees,
    testing::Values(Case{"2-1-1", kTwoOneOne}, Case{"1-2", {{.blocks = 2}, {.blocks = 2, .data = 2}}},
                    Case{"2-3", {{.blocks = 2, .data = 2}, {.blocks = 2, .data = 3}}, "gpipe"},
                    Case{"1-3-2, ZeRO 3", {{.blocks = 1}, {.blocks = 2, .data = 3}, {.blocks = 1, .data = 2}}, "1f1b", 3},
                    Case{"2-1-1, ZeRO 1, zero bubble", kTwoOneOne, "zb-h1", 1},
                    Case{"tensor 1-2", {{.blocks = 2}, {.blocks = 2, .tensor = 2}}},
                    Case{"tensor 1-2, zero bubble", {{.blocks = 2}, {.blocks = 2, .tensor = 2}}, "zb-h1"},
                    Case{"data x tensor 2x1, 1x2, zero bubble, ZeRO 2", {{.blocks = 3, .data = 2}, {.blocks = 1, .tensor = 2}}, "zb-h2", 2},
                    Case{"tensor 4-2-1, llama",
                         {{.blocks = 1, .tensor = 4}, {.blocks = 2, .tensor = 2}, {.blocks = 1, .tensor = 1}},
                         "1f1b",
                         0,
                         families::llama()},
                    Case{"data x tensor 2x1, 1x2, 2x2, bert, ZeRO 2",
                         {{.blocks = 1, .data = 2}, {.blocks = 2, .tensor = 2}, {.blocks = 1, .data = 2, .tensor = 2}},
                         "varuna",
                         2,
                         families::bert()},
                    Case{"2-1-1, bf16", kTwoOneOne, "1f1b", 0, families::gpt2(), Precision::bf16},
                    Case{"2-1-1, fp16", kTwoOneOne, "1f1b", 1, families::gpt2(), Precision::fp16},
                    Case{"2-1-2, tied",
                         {{.blocks = 1, .data = 2}, {.blocks = 2}, {.blocks = 1, .data = 2}},
                         "1f1b",
                         0,
                         families::gpt2(),
                         Precision::f32,
                         true}));

// Whether shards are kept, and how stages wait for each other, changes no bit.
TEST(OwnDegreesTogether, StagesOfZeroAndRecomputeAgreeToTheBit) {
  const Case each{"", kTwoOneOne};
  const Task task = task_of(each);
  Layout layout = layout_of(each);
  const Outcome plain = train(task, layout);
  for (std::int64_t zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    layout.strategy.zero = zero;
    expect_same_bits(train(task, layout), plain);
  }
  layout.strategy.zero = 0;
  layout.strategy.recompute = strategy::Recompute::full;
  expect_same_bits(train(task, layout), plain);
}

// Of the tensor ranks of a stage only the first sends to a stage that has fewer; the others still meet it in every sum.
TEST(OwnDegreesTogether, RecomputeBeforeAStageOfFewerTensorRanksAgreesToTheBit) {
  const Case each{"", {{.blocks = 2, .tensor = 2}, {.blocks = 2}}};
  const Task task = task_of(each);
  Layout layout = layout_of(each);
  const Outcome plain = train(task, layout);
  for (const strategy::Recompute recompute : {strategy::Recompute::selective, strategy::Recompute::full}) {
    layout.strategy.recompute = recompute;
    const Outcome again = train(task, layout);
    expect_same_bits(again, plain);
    EXPECT_EQ(again.sent, again.predicted);
  }
}

// Stages that have tensor ranks share out what those all keep, and the others have nothing to share.
TEST(OwnDegreesTogether, SplitActivationsAgreeToTheBit) {
  const Case each{"", {{.blocks = 2, .tensor = 2}, {.blocks = 2}}};
  const Task task = task_of(each);
  Layout layout = layout_of(each);
  const Outcome plain = train(task, layout);
  layout.strategy.split_activations = true;
  EXPECT_EQ(strategy::reasons_against(layout.strategy, 4), std::vector<std::string>{});
  const Outcome split = train(task, layout);
  expect_same_bits(split, plain);
  EXPECT_EQ(split.sent, split.predicted);
  for (Stage& stage : layout.strategy.stages) stage.tensor = 1;
  EXPECT_EQ(strategy::reasons_against(layout.strategy, 4).size(), 1u);
}

// Replicated stages change who computes a micro-batch, not with which weights.
TEST(OwnDegreesTogether, SchedulesWithoutAFlushAreThoseOfSingleRanks) {
  for (const char* schedule : {"pipedream", "pipedream-vsync", "2bw"}) {
    SCOPED_TRACE(schedule);
    Case each{"", kTwoOneOne, schedule};
    Task task = task_of(each);
    task.clip = 0.0;
    task.steps = 4;
    task.samples = 6;
    Layout layout = layout_of(each);
    layout.strategy.flush_every = 4;
    const Outcome replicated = train(task, layout);
    EXPECT_EQ(replicated.sent, replicated.predicted);
    for (Stage& stage : layout.strategy.stages) stage.data = 1;
    expect_close(replicated, train(task, layout), tolerance(task.precision));
  }
}

TEST(OwnDegreesTogether, AreRefusedWhereTheyCannotBe) {
  const auto refused = [](const Task& task, const Layout& layout, std::string_view words) {
    const auto plan = [&] {
      strategy::require_legal(layout.strategy, 4);
      train::plan_session(options_for(task, layout));
    };
    const std::string said = tests::refusal(plan, base::ErrorKind::not_legal);
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  const Case each{"", kTwoOneOne};
  Task task = task_of(each);
  task.samples = 7;
  refused(task, layout_of(each), "use 6 or 8");
  task = task_of(each);
  task.model.tied = true;
  refused(task, layout_of(each), "model.tied");
  Layout layout = layout_of({"", {{.blocks = 2, .tensor = 2}, {.blocks = 2}}});
  layout.strategy.sequence_parallel = true;
  refused(task_of(each), layout, "sequence_parallel");
  layout = layout_of(each);
  layout.strategy.zero = 1;
  layout.strategy.zero_group = 2;
  refused(task_of(each), layout, "zero_group");
}

}  // namespace
}  // namespace plimsoll::ranks

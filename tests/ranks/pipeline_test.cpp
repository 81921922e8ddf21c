// Every synchronous schedule on every layout computes what one rank computes; schedules that run backward in the same order agree
// to the bit.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.h"
#include "ranks/compare.h"
#include "ranks/layouts.h"
#include "strategy/schedules/verify.h"
#include "support/refusal.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

Layout pipeline(std::string schedule, std::int64_t pipe, std::int64_t chunks = 1) {
  Layout layout{.strategy = {}, .micro = 1};
  layout.strategy.schedule = std::move(schedule);
  layout.strategy.pipe = pipe;
  layout.strategy.chunks = chunks;
  layout.strategy.bucket = base::Bytes{20'000};
  return layout;
}

Task task_of(Family family, Precision precision = Precision::f32, std::int64_t layers = 4) {
  Task task{.model = small_model(family), .precision = precision};
  task.model.layers = layers;
  return task;
}

Outcome alone_of(const Task& task) { return train(task, Layout{.strategy = {}, .micro = 1}); }

struct Case {
  std::string schedule;
  std::int64_t pipe;
  std::int64_t chunks = 1;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.schedule << " x " << value.pipe; }

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}_{}", info.param.schedule, info.param.pipe, info.param.chunks);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Synchronous : public testing::TestWithParam<Case> {};

TEST_P(Synchronous, IsOneRank) {
  const auto& [schedule, pipe, chunks] = GetParam();
  for (Family family : {families::gpt2(), families::llama(), families::bert()}) {
    SCOPED_TRACE(fmt::format("family {}", family->name));
    const Task task = task_of(family);
    const Outcome staged = train(task, pipeline(schedule, pipe, chunks));
    expect_close(staged, alone_of(task), tolerance(task.precision));
    EXPECT_EQ(staged.sent, staged.predicted);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Synchronous,
                         testing::Values(Case{"gpipe", 2}, Case{"gpipe", 4}, Case{"1f1b", 2}, Case{"1f1b", 3}, Case{"1f1b", 4},
                                         Case{"interleaved", 2, 2}, Case{"interleaved", 2, 3}, Case{"varuna", 3}, Case{"zb-h1", 2},
                                         Case{"zb-h1", 4}, Case{"zb-h2", 3}, Case{"naive", 2}),
                         name_of);

// What a schedule changes is when things run: where each stage's backward comes in the order of the micro-batches, no bit does.
TEST(Pipeline, SchedulesWithBackwardInOrderAgreeToTheBit) {
  for (Precision precision : {Precision::f32, Precision::bf16, Precision::fp16}) {
    const Task task = task_of(families::gpt2(), precision);
    const Outcome usual = train(task, pipeline("1f1b", 2));
    for (const char* schedule : {"varuna", "zb-h1", "zb-h2"}) {
      SCOPED_TRACE(fmt::format("{} in precision {}", schedule, static_cast<int>(precision)));
      expect_same_bits(train(task, pipeline(schedule, 2)), usual);
    }
    expect_close(usual, alone_of(task), tolerance(precision));
  }
}

// The head is a stage alone, then the embedding too.
TEST(Pipeline, EmbeddingAndHeadMayBeStagesAlone) {
  for (Family family : {families::gpt2(), families::llama(), families::bert()}) {
    SCOPED_TRACE(fmt::format("family {}", family->name));
    Task task = task_of(family, Precision::f32, 3);
    task.samples = 10;
    const Outcome alone = alone_of(task);
    for (const auto& [schedule, pipe] : {std::pair{"1f1b", 4}, {"1f1b", 5}, {"zb-h2", 5}}) {
      const Outcome staged = train(task, pipeline(schedule, pipe));
      expect_close(staged, alone, tolerance(task.precision));
      EXPECT_EQ(staged.sent, staged.predicted);
    }
    Layout sharded = pipeline("1f1b", 5);
    sharded.strategy.partition = strategy::StagePartition::by_cost;
    sharded.strategy.data = 2;
    sharded.strategy.zero = 3;
    expect_close(train(task, sharded), alone, tolerance(task.precision));
  }
}

TEST(Pipeline, AStageMayHaveAnyBlocks) {
  const Task task = task_of(families::llama(), Precision::f32, 5);
  const Outcome alone = alone_of(task);
  Layout layout = pipeline("1f1b", 3);
  expect_close(train(task, layout), alone, tolerance(task.precision));
  layout.strategy.partition = strategy::StagePartition::by_cost;
  expect_close(train(task, layout), alone, tolerance(task.precision));
  layout.strategy.partition = strategy::StagePartition::listed;
  layout.strategy.stages = {{.blocks = 3}, {.blocks = 0}, {.blocks = 2}};
  expect_close(train(task, layout), alone, tolerance(task.precision));
}

// Between the backward pass of inputs and that of weights a rank keeps its own rows of gradients, not those of all tensor ranks: so
// zb-h1 holds about what 1f1b does.
TEST(Pipeline, ZeroBubbleKeepsRowsOfItsOwn) {
  Task task = task_of(families::llama());
  task.model.kv_heads = 4;
  const auto staged = [&](const char* schedule) {
    Layout layout = pipeline(schedule, 2);
    layout.strategy.tensor = 4;
    layout.strategy.sequence_parallel = true;
    return train(task, layout);
  };
  const Outcome apart = staged("zb-h1");
  const Outcome together = staged("1f1b");
  expect_same_bits(apart, together);
  EXPECT_LT(static_cast<double>(apart.activations), 1.2 * static_cast<double>(together.activations));
}

// Up to eight ranks: pipe x tensor x data x ZeRO.
struct Mesh {
  std::string schedule;
  std::int64_t pipe, tensor, data, zero;
  Family family = families::gpt2();
  Precision precision = Precision::f32;
};

void PrintTo(const Mesh& mesh, std::ostream* out) {
  *out << mesh.schedule << " pipe " << mesh.pipe << " tensor " << mesh.tensor << " data " << mesh.data << " ZeRO " << mesh.zero;
}

class ThreeAxes : public testing::TestWithParam<Mesh> {};

TEST_P(ThreeAxes, AreOneRank) {
  const Mesh& mesh = GetParam();
  Task task = task_of(mesh.family, mesh.precision);
  task.model.kv_heads = 4;
  Layout layout = pipeline(mesh.schedule, mesh.pipe, mesh.schedule == "interleaved" ? 2 : 1);
  layout.strategy.tensor = mesh.tensor;
  layout.strategy.data = mesh.data;
  layout.strategy.zero = mesh.zero;
  const Outcome found = train(task, layout);
  expect_close(found, alone_of(task), tolerance(mesh.precision));
  EXPECT_EQ(found.sent, found.predicted);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ThreeAxes,
                         testing::Values(Mesh{"1f1b", 2, 2, 2, 0}, Mesh{"1f1b", 2, 2, 2, 1}, Mesh{"1f1b", 2, 2, 2, 2},
                                         Mesh{"1f1b", 2, 2, 2, 3}, Mesh{"gpipe", 2, 1, 4, 3}, Mesh{"gpipe", 4, 2, 1, 0, families::llama()},
                                         Mesh{"interleaved", 2, 1, 2, 2}, Mesh{"interleaved", 2, 2, 2, 3, families::llama()},
                                         Mesh{"zb-h1", 2, 2, 2, 1, families::bert()}, Mesh{"zb-h1", 4, 1, 2, 3},
                                         Mesh{"varuna", 2, 1, 2, 1, families::bert()},
                                         Mesh{"1f1b", 2, 1, 2, 3, families::llama(), Precision::bf16},
                                         Mesh{"zb-h1", 2, 2, 1, 0, families::gpt2(), Precision::fp16},
                                         Mesh{"gpipe", 2, 2, 2, 2, families::bert(), Precision::bf16}));

// Tensor ranks send their rows of what passes between stages. Without sequence parallelism all rows are gathered there, and no bit
// changes; with it they stay rows.
TEST(Pipeline, TensorRanksSendTheirRows) {
  for (Family family : {families::gpt2(), families::llama(), families::bert()}) {
    SCOPED_TRACE(fmt::format("family {}", family->name));
    const Task task = task_of(family);
    Layout layout = pipeline("1f1b", 2);
    layout.strategy.tensor = 2;
    layout.strategy.scatter_boundaries = false;
    const Outcome whole = train(task, layout);
    layout.strategy.scatter_boundaries = true;
    const Outcome rows = train(task, layout);
    expect_same_bits(rows, whole);
    EXPECT_EQ(rows.sent, rows.predicted);
    EXPECT_EQ(whole.sent, whole.predicted);
  }
}

TEST(Pipeline, StagesBySequenceAreOneRank) {
  for (Family family : {families::gpt2(), families::llama(), families::bert()}) {
    for (const Mesh& mesh : {Mesh{"1f1b", 2, 2, 1, 0, family}, Mesh{"interleaved", 2, 2, 2, 3, family}, Mesh{"zb-h1", 3, 2, 1, 0, family},
                             Mesh{"gpipe", 2, 2, 2, 1, family, Precision::bf16}}) {
      SCOPED_TRACE(fmt::format("family {}, {}", family->name, mesh.schedule));
      const Task task = task_of(family, mesh.precision);
      Layout layout = pipeline(mesh.schedule, mesh.pipe, mesh.schedule == "interleaved" ? 2 : 1);
      layout.strategy.data = mesh.data;
      layout.strategy.tensor = mesh.tensor;
      layout.strategy.zero = mesh.zero;
      layout.strategy.sequence_parallel = true;
      const Outcome found = train(task, layout);
      expect_close(found, alone_of(task), tolerance(task.precision));
      EXPECT_EQ(found.sent, found.predicted);
      layout.strategy.recompute = strategy::Recompute::full;
      expect_same_bits(train(task, layout), found);
    }
  }
}

TEST(Pipeline, ShardsGivenUpBetweenMicroBatchesAreTheSameToRounding) {
  const Task task = task_of(families::gpt2());
  const Outcome alone = alone_of(task);
  for (std::int64_t zero : {2, 3}) {
    for (bool keep_params : {false, true}) {
      Layout layout = pipeline("1f1b", 2);
      layout.strategy.data = 2;
      layout.strategy.zero = zero;
      layout.strategy.keep_grads = false;
      layout.strategy.keep_params = keep_params;
      const Outcome found = train(task, layout);
      expect_close(found, alone, tolerance(task.precision));
      EXPECT_EQ(found.sent, found.predicted);
    }
  }
}

TEST(Pipeline, RecomputeChangesNoBit) {
  for (const char* schedule : {"1f1b", "zb-h1", "varuna"}) {
    const Task task = task_of(families::gpt2());
    const Outcome kept = train(task, pipeline(schedule, 2));
    for (strategy::Recompute recompute : {strategy::Recompute::full, strategy::Recompute::selective}) {
      SCOPED_TRACE(fmt::format("{}, recompute {}", schedule, static_cast<int>(recompute)));
      Layout layout = pipeline(schedule, 2);
      layout.strategy.recompute = recompute;
      const Outcome again = train(task, layout);
      expect_same_bits(again, kept);
      EXPECT_EQ(again.sent, kept.sent);
      EXPECT_LT(again.arena, kept.arena);
    }
  }
}

TEST(Pipeline, FewerForwardsInFlightNeedLessMemory) {
  const Task task{.model = task_of(families::gpt2()).model, .samples = 16};
  EXPECT_LT(train(task, pipeline("1f1b", 4)).arena, train(task, pipeline("gpipe", 4)).arena);
}

// Without clipping the ranks of zb-h2 update when they have their gradients; with a limit that is never reached they wait for the norm.
TEST(Pipeline, UpdatesThatDoNotWaitForOthersAreTheSame) {
  for (std::int64_t zero : {0, 3}) {
    Task task = task_of(families::gpt2());
    Layout layout = pipeline("zb-h2", 3);
    layout.strategy.data = 2;
    layout.strategy.zero = zero;
    task.samples = 16;
    task.clip = 1e9;
    const Outcome waiting = train(task, layout);
    task.clip = 0.0;
    expect_same_bits(train(task, layout), waiting);
  }
}

// A schedule drawn at random: whatever can run next, somewhere, on some rank. It cannot wait for ever, and backward passes of one stage
// come in any order.
strategy::schedules::Schedule random_schedule(std::uint32_t seed, const strategy::schedules::Shape& shape, bool splits) {
  using strategy::schedules::Item;
  using strategy::schedules::Work;
  std::minstd_rand draw(seed);
  strategy::schedules::Schedule schedule{.name = fmt::format("random {}", seed), .shape = shape, .ranks = {}};
  schedule.ranks.resize(static_cast<std::size_t>(shape.ranks));
  const auto stages = static_cast<std::int32_t>(shape.stages());
  std::set<std::tuple<Work, std::int32_t, std::int32_t>> done;
  const auto is_done = [&](Work work, std::int32_t stage, std::int32_t micro_batch) { return done.contains({work, stage, micro_batch}); };
  const Work back = splits ? Work::backward_input : Work::backward;
  while (true) {
    std::vector<Item> ready;
    for (std::int32_t stage = 0; stage < stages; ++stage) {
      for (std::int32_t micro = 0; micro < shape.micro_batches; ++micro) {
        const auto offer = [&](Work work, bool can) {
          if (can && !is_done(work, stage, micro)) ready.push_back({.work = work, .stage = stage, .micro_batch = micro});
        };
        offer(Work::forward, stage == 0 || is_done(Work::forward, stage - 1, micro));
        offer(back, is_done(Work::forward, stage, micro) && (stage + 1 == stages || is_done(back, stage + 1, micro)));
        if (splits) offer(Work::backward_weight, is_done(back, stage, micro));
      }
    }
    if (ready.empty()) break;
    const Item next = ready[draw() % ready.size()];
    done.insert({next.work, next.stage, next.micro_batch});
    schedule.ranks[static_cast<std::size_t>(schedule.rank_of(next.stage, next.micro_batch))].push_back(next);
  }
  for (std::vector<Item>& items : schedule.ranks) items.push_back({.work = Work::update, .version = 1});
  return schedule;
}

TEST(Pipeline, SchedulesDrawnAtRandomAreOneRank) {
  const Task task = task_of(families::gpt2());
  const Outcome alone = alone_of(task);
  for (std::uint32_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    const std::int64_t pipe = 2 + seed % 3;
    const std::int64_t chunks = pipe == 2 && seed % 2 == 0 ? 2 : 1;
    Layout layout = pipeline("1f1b", pipe, chunks);
    layout.schedule = random_schedule(seed, {.ranks = pipe, .micro_batches = 8, .chunks = chunks}, seed % 4 == 1);
    strategy::schedules::require_valid(*layout.schedule);
    const Outcome found = train(task, layout);
    expect_close(found, alone, tolerance(task.precision));
    EXPECT_EQ(found.sent, found.predicted);
  }
}

// To and fro: the first and the last stage on one rank, whose shared table has a gradient of two parts. Tensor ranks make the head's with
// the gradients of weights; an embedding that came first would add to what nobody has written.
TEST(Pipeline, ATableOfBothEndsOnOneRank) {
  using strategy::schedules::Item;
  using strategy::schedules::Work;
  Task task = task_of(families::gpt2());
  task.samples = 1;
  const Outcome alone = alone_of(task);
  const auto layout_of = [](std::int64_t tensor, const std::vector<std::pair<Work, std::int32_t>>& ends) {
    Layout layout = pipeline("1f1b", 2, 2);
    layout.strategy.tensor = tensor;
    strategy::schedules::Schedule schedule{.name = "to and fro",
                                           .shape = {.ranks = 2, .micro_batches = 1, .chunks = 2},
                                           .placement = strategy::schedules::Placement::vee,
                                           .ranks = std::vector<std::vector<Item>>(2)};
    for (const auto& [work, stage] : ends) schedule.ranks[0].push_back({.work = work, .stage = stage, .micro_batch = 0});
    for (std::int32_t stage : {1, 2}) schedule.ranks[1].push_back({.work = Work::forward, .stage = stage, .micro_batch = 0});
    for (std::int32_t stage : {2, 1}) schedule.ranks[1].push_back({.work = Work::backward, .stage = stage, .micro_batch = 0});
    for (std::vector<Item>& items : schedule.ranks) items.push_back({.work = Work::update, .version = 1});
    strategy::schedules::require_valid(schedule);
    layout.schedule = std::move(schedule);
    return layout;
  };
  const std::vector<std::pair<Work, std::int32_t>> head_first{
      {Work::forward, 0}, {Work::forward, 3}, {Work::backward_input, 3}, {Work::backward_weight, 3}, {Work::backward, 0}};
  const std::vector<std::pair<Work, std::int32_t>> embedding_first{
      {Work::forward, 0}, {Work::forward, 3}, {Work::backward_input, 3}, {Work::backward, 0}, {Work::backward_weight, 3}};
  for (std::int64_t tensor : {1, 2}) expect_close(train(task, layout_of(tensor, head_first)), alone, tolerance(task.precision));
  expect_close(train(task, layout_of(1, embedding_first)), alone, tolerance(task.precision));
  const std::string said = tests::refusal([&] { train(task, layout_of(2, embedding_first)); }, base::ErrorKind::not_legal);
  EXPECT_NE(said.find("rank 0, item 3 (backward of micro-batch 0 in stage 0)"), std::string::npos) << said;
}

// Two items of a rank that have changed places: either the verifier names what is wrong, or the ranks still meet.
TEST(Pipeline, SchedulesOutOfOrderAreRefusedOrRun) {
  Task task = task_of(families::gpt2());
  task.samples = 4;
  task.steps = 1;
  const Outcome alone = alone_of(task);
  int refused = 0;
  int ran = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Layout layout = pipeline("1f1b", 3);
    layout.schedule = random_schedule(seed, {.ranks = 3, .micro_batches = 4}, false);
    std::minstd_rand draw(seed * 7 + 1);
    std::vector<strategy::schedules::Item>& items = layout.schedule->ranks[draw() % 3];
    std::swap(items[draw() % items.size()], items[draw() % items.size()]);
    try {
      strategy::schedules::require_valid(*layout.schedule);
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::not_legal) << error.what();
      ++refused;
      continue;
    }
    expect_close(train(task, layout), alone, tolerance(task.precision));
    ++ran;
  }
  EXPECT_GT(refused, 5);
  EXPECT_GT(ran, 5);
}

TEST(Pipeline, RefusesWhatCannotBe) {
  const auto refused = [](const Task& task, const Layout& layout, std::string_view words) {
    const std::string said = tests::refusal([&] { train(task, layout); }, base::ErrorKind::not_legal);
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  refused(task_of(families::gpt2(), Precision::f32, 2), pipeline("1f1b", 5), "the model has 2 layers; use at most 4 stages");
  Task odd = task_of(families::gpt2());
  odd.samples = 5;
  refused(odd, pipeline("interleaved", 2, 2), "multiple of the 2 pipeline ranks");
  refused(task_of(families::gpt2()), pipeline("1f1b", 2, 2), "\"chunks\": 2");
  Layout listed = pipeline("1f1b", 2);
  listed.strategy.partition = strategy::StagePartition::listed;
  listed.strategy.stages = {{.blocks = 1}, {.blocks = 2}};
  refused(task_of(families::gpt2()), listed, "deals out 3 layers, but the model has 4; use 1 more, or \"equal\"");
}

}  // namespace
}  // namespace plimsoll::ranks

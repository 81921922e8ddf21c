// Schedules without a flush against their definitions: gradients of old weights, applied to the newest. The reference keeps every
// version that ever was and computes each gradient by one rank whose stages are set to the versions that the definition names.
#include <gtest/gtest.h>

#include "io/temporary_folder.h"
#include "ranks/compare.h"
#include "ranks/layouts.h"
#include "strategy/legality.h"
#include "strategy/schedules/csv.h"
#include "strategy/schedules/table.h"
#include "strategy/stages.h"
#include "support/refusal.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using Weights = std::map<std::string, std::vector<float>>;

// The version that a stage computes with for a batch, in a round that starts with version 0.
using VersionOf = std::function<std::int64_t(std::int64_t stage, std::int64_t batch)>;

struct Kind {
  std::string schedule;
  std::int64_t pipe;
  std::int64_t samples;  // of a batch, one in each micro-batch
  std::int32_t round;
  bool tied;
  VersionOf version_of;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.schedule << " x " << kind.pipe; }

VersionOf stashed(std::int64_t pipe) {
  return [pipe](std::int64_t stage, std::int64_t batch) { return std::max<std::int64_t>(0, batch - (pipe - 1 - stage)); };
}
VersionOf in_step(std::int64_t pipe) {
  return [pipe](std::int64_t, std::int64_t batch) { return std::max<std::int64_t>(0, batch - (pipe - 1)); };
}
VersionOf one_behind() {
  return [](std::int64_t, std::int64_t batch) { return std::max<std::int64_t>(0, batch - 1); };
}

// No delay: batches in a row that no barrier parts are as batches apart.
VersionOf newest() {
  return [](std::int64_t, std::int64_t batch) { return batch; };
}

// A rate that is a power of two: its product with a gradient is exact, so w - rate * g has one rounding however it is computed.
constexpr float kRate = 1.0f / 64.0f;

Task task_of(const Kind& kind, std::int32_t rounds = 2) {
  Task task{.model = small_model(families::gpt2()), .clip = 0.0, .samples = kind.samples, .steps = rounds * kind.round};
  task.model.layers = 4;
  task.model.tied = kind.tied;
  task.learning_rate = kRate;
  task.optimizer = "sgd";
  return task;
}

Layout layout_of(const Kind& kind) {
  Layout layout{.strategy = {}, .micro = 1};
  layout.strategy.schedule = kind.schedule;
  layout.strategy.pipe = kind.pipe;
  layout.strategy.flush_every = kind.round;
  return layout;
}

struct Reference {
  std::vector<double> losses;
  Weights weights;
};

Reference delayed(const Task& task, const Kind& kind) {
  Layout layout{.strategy = {}, .micro = 1};
  Task one = task;
  one.gradients = true;
  train::Session session(options_for(one, layout));
  const std::vector<std::int32_t> stage_of_block = strategy::stages_of(session.graph(), layout_of(kind).strategy);
  std::map<std::string, std::int64_t> stage_of;
  for (const graph::Parameter& parameter : session.graph().parameters)
    stage_of[parameter.name] = stage_of_block[session.graph().values[parameter.weight].block.index];
  Reference reference;
  for (const auto& [name, stage] : stage_of) reference.weights[name] = train::read_parameter(session, name);
  for (std::int32_t first = 0; first < task.steps; first += kind.round) {
    std::vector<Weights> versions{reference.weights};
    for (std::int32_t batch = 0; batch < kind.round; ++batch) {
      train::write_parameters(session, [&](const train::ParameterInfo& info, std::int64_t row, std::span<float> to) {
        const std::int64_t version = kind.version_of(stage_of.at(info.name), batch);
        const std::vector<float>& from = versions.at(static_cast<std::size_t>(version)).at(info.name);
        std::copy_n(from.begin() + row * (info.shape.elements() / info.shape[0]), to.size(), to.begin());
      });
      const auto step = static_cast<std::uint32_t>(first + batch + 1);
      for (std::int32_t micro_batch = 0; micro_batch < task.samples; ++micro_batch)
        fill(session, "train", micro_batch, micro_batch, task.model.vocab, step);
      reference.losses.push_back(session.step({.learning_rate = kRate, .step = step, .valid_targets = valid_targets(task.samples)}).loss);
      Weights next = versions.back();
      for (auto& [name, values] : next) {
        const std::vector<float> gradient = train::read_gradient(session, name);
        for (std::size_t index = 0; index < values.size(); ++index) values[index] -= kRate * gradient[index];
      }
      versions.push_back(std::move(next));
    }
    reference.weights = versions.back();
  }
  return reference;
}

class Asynchronous : public testing::TestWithParam<Kind> {};

TEST_P(Asynchronous, IsItsDelayedGradient) {
  const Kind& kind = GetParam();
  const Task task = task_of(kind);
  const Outcome found = train(task, layout_of(kind));
  const Reference expected = delayed(task, kind);
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  // Of a table on two stages, the two parts of its gradient are summed in another order.
  for (std::size_t step = 0; step < found.losses.size(); ++step) {
    if (kind.tied) {
      EXPECT_NEAR(found.losses[step], expected.losses[step], 2e-5 * expected.losses[step]) << "step " << step + 1;
    } else {
      EXPECT_EQ(found.losses[step], expected.losses[step]) << "step " << step + 1;
    }
  }
  if (!kind.tied) {
    EXPECT_EQ(found.parameters, expected.weights);
  }
  EXPECT_EQ(found.sent, found.predicted);
}

// More ranks on other axes, and shards, are the same training to rounding.
TEST_P(Asynchronous, ComposesWithTheOtherAxes) {
  const Kind& kind = GetParam();
  Task task = task_of(kind, 1);
  task.optimizer = "adamw";
  task.samples *= 2;
  Layout layout = layout_of(kind);
  layout.micro = 2;
  const Outcome alone = train(task, layout);
  layout.micro = 1;
  layout.strategy.data = 2;
  const Outcome shared = train(task, layout);
  expect_close(shared, alone, tolerance(task.precision));
  EXPECT_EQ(shared.sent, shared.predicted);
  for (std::int64_t zero : {1, 2, 3}) {
    layout.strategy.zero = zero;
    expect_same_bits(train(task, layout), shared);
  }
  layout.strategy.zero = 0;
  layout.strategy.recompute = strategy::Recompute::full;
  expect_same_bits(train(task, layout), shared);
  if (kind.pipe > 2) return;
  layout.strategy.tensor = 2;
  layout.strategy.sequence_parallel = true;
  expect_close(train(task, layout), alone, tolerance(task.precision));
}

// Old versions are put aside where weights are, and every batch has gradients of its own.
TEST_P(Asynchronous, ComposesWithSlowerTiers) {
  const Kind& kind = GetParam();
  Task task = task_of(kind);
  task.optimizer = "adamw";
  for (std::int64_t data : {1, 2}) {
    task.samples = kind.samples * data;
    Layout layout = layout_of(kind);
    layout.strategy.data = data;
    layout.strategy.zero = data == 1 ? 0 : 3;
    layout.strategy.keep_grads = data == 1;
    const Outcome near = train(task, layout);
    const tests::TemporaryFolder folder;
    layout.disk_folder = folder.path().string();
    constexpr strategy::TierShare kHost{.host = 1.0};
    constexpr strategy::TierShare kDisk{.disk = 1.0};
    constexpr strategy::TierShare kNear{};
    for (const strategy::Offload& offload :
         {strategy::Offload{.optimizer = kHost, .gradients = kNear, .params = kHost, .activations = kNear},
          {.optimizer = kHost, .gradients = kHost, .params = kHost, .activations = kNear},
          {.optimizer = kDisk, .gradients = kDisk, .params = kNear, .activations = kNear},
          {.optimizer = kDisk, .gradients = kDisk, .params = kHost, .activations = kNear}}) {
      layout.strategy.offload = offload;
      SCOPED_TRACE(strategy::describe(layout.strategy));
      EXPECT_EQ(strategy::reasons_against(layout.strategy, 2), std::vector<std::string>{});
      expect_same_bits(train(task, layout), near);
    }
    layout.strategy.offload = {.optimizer = kDisk, .gradients = kNear, .params = kDisk, .activations = kNear};
    EXPECT_NE(tests::refusal([&] { strategy::require_legal(layout.strategy, 2); }, base::ErrorKind::not_legal).find("\"host\""),
              std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Asynchronous,
                         testing::Values(Kind{"pipedream", 2, 1, 4, false, stashed(2)}, Kind{"pipedream", 4, 1, 6, false, stashed(4)},
                                         Kind{"pipedream-vsync", 2, 1, 4, false, in_step(2)},
                                         Kind{"pipedream-vsync", 4, 1, 6, true, in_step(4)}, Kind{"2bw", 2, 2, 4, false, one_behind()},
                                         Kind{"2bw", 2, 3, 3, true, one_behind()}, Kind{"2bw", 4, 4, 3, false, one_behind()},
                                         Kind{"zb-h2", 2, 4, 3, false, newest()}, Kind{"zb-h2", 4, 8, 2, true, newest()}));

// A rank keeps the versions that its micro-batches under way need, and the first has most of them under way.
TEST(Versions, AreAsManyAsTheScheduleNeeds) {
  const auto stashes = [](const Kind& kind, std::size_t place) {
    const plan::Plan plan = train::plan_session(options_for(task_of(kind), layout_of(kind)));
    const plan::RankClass& rank_class = plan.classes.at(place);
    const std::string weight = fmt::format("blocks.{}.attention.qkv.weight", place);  // one layer on each place
    std::map<std::int32_t, std::set<std::string>> alive;
    std::int64_t most = 0;
    for (const plan::Buffer& buffer : rank_class.buffers) {
      if (buffer.kind != plan::BufferKind::stash || !buffer.name.starts_with(weight)) continue;
      for (std::int32_t moment = buffer.first; moment <= buffer.last; ++moment) alive[moment].insert(buffer.name);
    }
    for (const auto& [moment, names] : alive) most = std::max<std::int64_t>(most, static_cast<std::int64_t>(names.size()));
    return most;
  };
  const Kind pipedream{"pipedream", 4, 1, 8, false, stashed(4)};
  for (std::size_t place = 0; place < 4; ++place) EXPECT_EQ(stashes(pipedream, place), 3 - static_cast<std::int64_t>(place)) << place;
  const Kind buffered{"2bw", 4, 4, 4, false, one_behind()};
  for (std::size_t place = 0; place < 4; ++place) EXPECT_EQ(stashes(buffered, place), 1) << place;
}

// The same order by its name and from a file.
Layout from_file(Layout layout, std::int64_t micro_batches) {
  const strategy::schedules::Shape shape{
      .ranks = layout.strategy.pipe, .micro_batches = micro_batches, .batches = layout.strategy.flush_every};
  const std::string text = strategy::schedules::write_csv(strategy::schedules::build(layout.strategy.schedule, shape));
  layout.schedule = strategy::schedules::parse_csv(text, "own.csv", {.ranks = shape.ranks, .micro_batches = micro_batches});
  layout.strategy.schedule = "own.csv";
  return layout;
}

// What needs steps that end before the next ones begin.
const std::map<std::string, void (*)(strategy::Strategy&)> kNeedSteps{
    {"params on disk",
     [](strategy::Strategy& strategy) {
       strategy.offload = {.optimizer = {.disk = 1.0}, .gradients = {}, .params = {.disk = 1.0}, .activations = {}};
     }},
    {"kept params", [](strategy::Strategy& strategy) { strategy.data = 2, strategy.zero = 3, strategy.keep_params = true; }},
    {"carried update",
     [](strategy::Strategy& strategy) {
       strategy.offload.optimizer = {.host = 1.0};
       strategy.carry_update = strategy::CarryUpdate::always;
     }},
    {"delayed update",
     [](strategy::Strategy& strategy) {
       strategy.offload.optimizer = {.host = 1.0};
       strategy.delayed_update = true;
     }},
    {"rows on disk",
     [](strategy::Strategy& strategy) {
       strategy.offload.optimizer = {.host = 1.0};
       strategy.embedding_rows = strategy::EmbeddingRows::disk;
     }},
};

// With a flush after every step they are 1f1b by another name, and may have what 1f1b may.
TEST(OneBatch, IsSynchronousByNameAndFromAFile) {
  for (const auto& [name, add] : kNeedSteps) {
    for (const char* schedule : {"pipedream", "pipedream-vsync", "2bw", "zb-h2"}) {
      SCOPED_TRACE(fmt::format("{}, {}", name, schedule));
      const tests::TemporaryFolder folder;
      Layout layout{.strategy = {}, .micro = 1, .disk_folder = folder.path().string()};
      layout.strategy.pipe = 2;
      layout.strategy.schedule = schedule;
      add(layout.strategy);
      const std::int64_t micro_batches = 4;
      Task task{.model = small_model(families::gpt2()), .clip = 0.0, .samples = micro_batches * layout.strategy.data, .steps = 3};
      task.model.tied = false;
      Layout plain = layout;
      plain.strategy.schedule = "1f1b";
      const Layout file = from_file(layout, micro_batches);
      for (const Layout& each : {layout, file}) {
        EXPECT_EQ(strategy::reasons_against(each.strategy, micro_batches), std::vector<std::string>{});
        expect_same_bits(train(task, each), train(task, plain));
      }
      // With two steps to a flush a file meets the same refusals.
      Layout longer = layout;
      longer.strategy.flush_every = 2;
      const std::vector<std::string> by_name = strategy::reasons_against(longer.strategy, micro_batches);
      EXPECT_EQ(by_name.size(), 1u);
      longer.strategy.schedule = "own.csv";
      EXPECT_EQ(strategy::reasons_against(longer.strategy, micro_batches).size(), by_name.size());
    }
  }
}

TEST(Versions, AreRefusedWhereTheyCannotBe) {
  const auto refused = [](const Task& task, const Layout& layout, std::string_view words) {
    const std::string said = tests::refusal([&] { train(task, layout); }, base::ErrorKind::not_legal);
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  const Kind kind{"pipedream", 2, 1, 4, false, stashed(2)};
  Task clipped = task_of(kind);
  clipped.clip = 1.0;
  refused(clipped, layout_of(kind), "\"optimizer.clip\": 0");
  Task tied = task_of(kind);
  tied.model.tied = true;
  refused(tied, layout_of(kind), "pipedream-vsync");
}

}  // namespace
}  // namespace plimsoll::ranks

// The token table on disk, by rows. Its optimizer updates the rows that a step reads and leaves all others as they are, so its reference
// is the whole table in memory, of which every step puts back the rows that it did not read. Where rows without a gradient do not change
// anyway (gradient descent without momentum and decay) it is the whole table itself.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "io/temporary_folder.h"
#include "plan/file.h"
#include "plan/verify.h"
#include "ranks/compare.h"
#include "ranks/device_beside.h"
#include "ranks/disk_faults.h"
#include "ranks/layouts.h"
#include "strategy/legality.h"
#include "support/refusal.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;
using strategy::EmbeddingRows;
using strategy::Recompute;

constexpr std::int64_t kVocab = 1'009;
constexpr const char* kTable = "embed.tokens";

struct Mix {
  const char* name;
  Family family = families::gpt2();
  const char* optimizer = "adamw";
  Precision precision = Precision::f32;
  std::int64_t micro = 2;
  double clip = 0.0;
};

Task task_of(const Mix& mix) {
  Task task{.model = small_model(mix.family), .precision = mix.precision, .clip = mix.clip, .samples = 8, .steps = 4};
  task.optimizer = mix.optimizer;
  task.model.vocab = kVocab;
  task.model.tied = false;
  return task;
}

// A tensor's bytes after the last step, wherever it is.
using Tensors = std::map<std::string, std::vector<std::byte>>;

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  Tensors tensors;  // the table in f32 and the optimizer's state of it
  std::set<std::int32_t> touched;
};

class RowsOnDisk : public testing::Test {
 protected:
  Layout layout_of(std::int64_t micro, EmbeddingRows rows = EmbeddingRows::disk) const {
    Layout layout{.strategy = {}, .micro = micro};
    layout.strategy.embedding_rows = rows;
    layout.disk_folder = folder_.path().string();
    return layout;
  }

  // With the whole table in memory, rows that a step does not read are put back behind it: the definition.
  Trained train_table(const Task& task, std::int64_t micro, EmbeddingRows rows) const {
    const train::SessionOptions options = options_for(task, layout_of(micro, rows));
    train::Session session(options);
    const graph::Graph& graph = session.graph();
    const auto table = std::find_if(graph.parameters.begin(), graph.parameters.end(), [](const auto& each) { return each.name == kTable; });
    std::set<std::string> names{graph.values[table->master].name};
    for (const graph::ValueId state : table->states) names.insert(graph.values[state].name);
    std::set<std::string> all = names;
    all.insert(graph.values[table->weight].name);
    Trained trained;
    for (std::int32_t step = 1; step <= task.steps; ++step) {
      std::set<std::int32_t> touched;
      for (std::int32_t micro_batch = 0; micro_batch < options.micro_batches; ++micro_batch) {
        fill(session, "train", micro_batch, micro_batch * micro, task.model.vocab, static_cast<std::uint32_t>(step));
        for (const std::int32_t token : session.input("train", "tokens", micro_batch)) touched.insert(token);
      }
      Tensors before;
      if (rows == EmbeddingRows::whole) {
        for (const std::string& name : all) before[name] = session.buffers().copy(name);
      }
      const train::StepResult result = session.step(
          {.learning_rate = task.learning_rate, .step = static_cast<std::uint32_t>(step), .valid_targets = valid_targets(task.samples)});
      for (const auto& [name, bytes] : before) {
        const auto row = static_cast<std::int64_t>(bytes.size()) / kVocab;
        for (std::int32_t id = 0; id < kVocab; ++id) {
          if (!touched.contains(id)) std::copy_n(bytes.begin() + id * row, row, session.buffers().bytes(name) + id * row);
        }
      }
      trained.losses.push_back(result.loss);
      trained.norms.push_back(result.gradient_norm);
      trained.touched.insert(touched.begin(), touched.end());
    }
    for (const std::string& name : names) trained.tensors[name] = session.buffers().copy(name);
    return trained;
  }

  tests::TemporaryFolder folder_;
};

std::span<const float> floats(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

class Optimized : public RowsOnDisk, public testing::WithParamInterface<Mix> {};

TEST_P(Optimized, IsItsReference) {
  const Mix& mix = GetParam();
  const Task task = task_of(mix);
  const Trained rows = train_table(task, mix.micro, EmbeddingRows::disk);
  const Trained reference = train_table(task, mix.micro, EmbeddingRows::whole);
  ASSERT_EQ(rows.tensors.size(), reference.tensors.size());
  // The norm for clipping sums blocks of elements, which other rows share: then all is the same to rounding.
  if (mix.clip == 0.0) {
    EXPECT_EQ(rows.losses, reference.losses);
    EXPECT_EQ(rows.tensors, reference.tensors);
  }
  for (std::size_t step = 0; step < rows.losses.size(); ++step) {
    EXPECT_NEAR(rows.losses[step], reference.losses[step], 1e-5 * reference.losses[step]);
    EXPECT_NEAR(rows.norms[step], reference.norms[step], 1e-6 * reference.norms[step]);
  }
  for (const auto& [name, expected] : reference.tensors) {
    const std::span<const float> found = floats(rows.tensors.at(name));
    const std::span<const float> wanted = floats(expected);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t index = 0; index < found.size(); ++index) ASSERT_NEAR(found[index], wanted[index], 1e-5f) << name << " " << index;
  }
  // What no step read is as it was drawn.
  ASSERT_LT(rows.touched.size(), static_cast<std::size_t>(kVocab));
  Task untrained = task;
  untrained.steps = 0;
  const Trained drawn = train_table(untrained, mix.micro, EmbeddingRows::whole);
  for (const auto& [name, expected] : drawn.tensors) {
    const std::span<const float> found = floats(rows.tensors.at(name));
    const std::span<const float> wanted = floats(expected);
    const std::size_t width = found.size() / static_cast<std::size_t>(kVocab);
    bool changed = false;
    for (std::size_t index = 0; index < found.size(); ++index) {
      const bool touched = rows.touched.contains(static_cast<std::int32_t>(index / width));
      if (!touched) {
        ASSERT_EQ(found[index], wanted[index]) << name << " " << index;
      }
      changed = changed || (touched && found[index] != wanted[index]);
    }
    EXPECT_TRUE(changed) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes, Optimized,
                         testing::Values(Mix{"sgd", families::gpt2(), "sgd"}, Mix{"momentum", families::gpt2(), "momentum"},
                                         Mix{"adam", families::llama(), "adam"}, Mix{"adamw", families::gpt2(), "adamw"},
                                         Mix{"adamw_one_micro_batch", families::gpt2(), "adamw", Precision::f32, 8},
                                         Mix{"adamw_bf16", families::gpt2(), "adamw", Precision::bf16},
                                         Mix{"adamw_fp16", families::llama(), "adamw", Precision::fp16, 1},
                                         Mix{"bert_adamw_bf16", families::bert(), "adamw", Precision::bf16, 4},
                                         Mix{"adamw_clipped", families::gpt2(), "adamw", Precision::f32, 2, 0.1},
                                         Mix{"momentum_clipped", families::llama(), "momentum", Precision::f32, 2, 0.1},
                                         Mix{"adamw_clipped_bf16", families::gpt2(), "adamw", Precision::bf16, 2, 0.1}),
                         [](const auto& each) { return each.param.name; });

// The whole table in memory is another training with Adam: its moments fade and its weights go on.
TEST_F(RowsOnDisk, IsAnotherTrainingThanTheWholeTable) {
  const Task task = task_of({"", families::gpt2(), "adamw"});
  const Outcome whole = train(task, layout_of(2, EmbeddingRows::whole));
  const Outcome rows = train(task, layout_of(2));
  EXPECT_NE(rows.parameters.at(kTable), whole.parameters.at(kTable));
  EXPECT_EQ(rows.losses[0], whole.losses[0]);
}

struct Place {
  const char* name;
  Family family = families::gpt2();
  Precision precision = Precision::f32;
  std::int64_t micro = 2;
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
  std::int64_t zero = 0;
  bool keep_grads = true;
  Recompute recompute = Recompute::none;
  const char* schedule = "1f1b";
  strategy::Offload offload = {};
  std::int64_t tile = 0;
  std::vector<strategy::Stage> stages = {};

  bool adds_alike() const { return data == 1 && tensor == 1 && tile == 0 && stages.empty(); }
};

class RowsInLayout : public RowsOnDisk, public testing::WithParamInterface<Place> {
 protected:
  Layout layout() const {
    const Place& place = GetParam();
    Layout layout = layout_of(place.micro, EmbeddingRows::whole);
    layout.strategy.data = place.data;
    layout.strategy.tensor = place.tensor;
    layout.strategy.pipe = place.pipe;
    layout.strategy.zero = place.zero;
    layout.strategy.keep_grads = place.keep_grads;
    if (!place.stages.empty()) layout.strategy.partition = strategy::StagePartition::listed;
    layout.strategy.stages = place.stages;
    layout.strategy.recompute = place.recompute;
    layout.strategy.schedule = place.schedule;
    layout.strategy.offload = place.offload;
    layout.strategy.tile = base::Bytes{place.tile};
    layout.strategy.bucket = base::Bytes{20'000};
    return layout;
  }
};

// Rows without a gradient stay as they are: the whole table is the oracle, to the bit.
TEST_P(RowsInLayout, GradientDescentIsThatOfTheWholeTable) {
  Task task = task_of({"", GetParam().family, "sgd", GetParam().precision});
  task.learning_rate = 0.2f;
  if (GetParam().family == families::gpt2()) task.model.dropout = 0.1;
  Layout given = layout();
  const Outcome whole = train(task, given);
  given.strategy.embedding_rows = EmbeddingRows::disk;
  const Outcome rows = train(task, given);
  EXPECT_EQ(rows.losses, whole.losses);
  EXPECT_EQ(rows.evaluation, whole.evaluation);
  for (const auto& [name, values] : whole.parameters) EXPECT_EQ(rows.parameters.at(name), values) << name;
  EXPECT_EQ(rows.sent, rows.predicted);
}

// However ranks and tiers have the rest, the rows are updated alike: to the bit but for what data ranks and tiles add up in another order.
TEST_P(RowsInLayout, IsThatOfOneRank) {
  const Place& place = GetParam();
  const Task task = task_of({"", place.family, "adamw", place.precision});
  const Outcome one = train(task, layout_of(place.micro));
  Layout given = layout();
  given.strategy.embedding_rows = EmbeddingRows::disk;
  const Outcome many = train(task, given);
  expect_close(many, one, tolerance(place.precision));
  if (place.adds_alike()) {
    EXPECT_EQ(many.losses, one.losses);
    EXPECT_EQ(many.evaluation, one.evaluation);
    for (const auto& [name, values] : one.parameters) EXPECT_EQ(many.parameters.at(name), values) << name;
  }
}

constexpr strategy::TierShare kHost{.host = 1.0};
constexpr strategy::TierShare kDisk{.disk = 1.0};
constexpr strategy::Offload kAllOnHost{.optimizer = kHost, .gradients = kHost, .params = kHost, .activations = kHost};
constexpr strategy::Offload kAllOnDisk{.optimizer = kDisk, .gradients = kDisk, .params = kDisk, .activations = kDisk};

INSTANTIATE_TEST_SUITE_P(
    Layouts, RowsInLayout,
    testing::Values(Place{.name = "one"}, Place{.name = "bert", .family = families::bert()},
                    Place{.name = "llama_bf16", .family = families::llama(), .precision = Precision::bf16},
                    Place{.name = "full_recompute", .recompute = Recompute::full},
                    Place{.name = "selective_recompute", .recompute = Recompute::selective}, Place{.name = "data2", .data = 2},
                    Place{.name = "data4_bf16", .family = families::llama(), .precision = Precision::bf16, .micro = 1, .data = 4},
                    Place{.name = "data2_zero1", .data = 2, .zero = 1},
                    Place{.name = "data2_zero2_each", .micro = 1, .data = 2, .zero = 2, .keep_grads = false},
                    Place{.name = "data2_zero3_bf16", .precision = Precision::bf16, .data = 2, .zero = 3, .recompute = Recompute::full},
                    Place{.name = "tensor2", .tensor = 2},
                    Place{.name = "bert_tensor2_data2", .family = families::bert(), .data = 2, .tensor = 2},
                    Place{.name = "pipe2", .micro = 1, .pipe = 2},
                    Place{.name = "pipe2_zero_bubble", .family = families::llama(), .micro = 1, .pipe = 2, .schedule = "zb-h1"},
                    Place{.name = "data2_pipe2", .micro = 1, .data = 2, .pipe = 2, .recompute = Recompute::full},
                    Place{.name = "stages_of_two_and_one", .micro = 1, .pipe = 2, .stages = {{.blocks = 1, .data = 2}, {.blocks = 1}}},
                    Place{.name = "optimizer_on_host", .offload = {.optimizer = kHost, .gradients = {}, .params = {}, .activations = {}}},
                    Place{.name = "all_on_host", .micro = 8, .offload = kAllOnHost},
                    Place{.name = "all_on_disk_bf16",
                          .family = families::llama(),
                          .precision = Precision::bf16,
                          .micro = 8,
                          .recompute = Recompute::full,
                          .offload = kAllOnDisk},
                    Place{.name = "tiles_on_disk", .micro = 8, .offload = kAllOnDisk, .tile = 16'384}),
    [](const auto& each) { return each.param.name; });

// Beside a device the host casts rows on a stream of its own.
TEST_F(RowsOnDisk, IsTheSameBesideADevice) {
  const DeviceBeside beside;
  for (const strategy::TierShare& optimizer : {strategy::TierShare{}, kHost}) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      Task task = task_of({"", families::llama(), "adamw", precision, 2, 0.1});
      Layout layout = layout_of(2);
      layout.strategy.offload.optimizer = optimizer;
      const Outcome here = train(task, layout);
      task.backend = &beside;
      expect_same_bits(train(task, layout), here);
    }
  }
}

// A record of whole pages for each row on disk; in memory room for as many rows as a step has tokens: on the device the weight and its
// state, in the host's memory which rows they are, and a copy on the way.
TEST_F(RowsOnDisk, TakesWhatItsRowsTake) {
  Task task = task_of({"", families::gpt2(), "adamw"});
  task.steps = 1;
  const Outcome rows = train(task, layout_of(2));
  const Outcome whole = train(task, layout_of(2, EmbeddingRows::whole));
  const std::int64_t width = task.model.width;
  const std::int64_t room = task.samples * kSequence;
  EXPECT_GE(rows.disk_arena, kVocab * 4096);
  EXPECT_LT(rows.disk_arena, kVocab * 4096 + 3 * 4096);                  // tensors begin at pages
  EXPECT_EQ(whole.arena - rows.arena, (kVocab - room) * width * 4 * 4);  // weight, gradient, two moments
  EXPECT_LE(rows.host_arena, room * (width * 3 * 4 + 4) + 3 * 4096);
}

TEST_F(RowsOnDisk, PlansAreVerifiedStoredAndReadBack) {
  Layout layout = layout_of(2);
  layout.strategy.pipe = 2;
  const plan::Plan plan = train::plan_session(options_for(task_of({"", families::gpt2(), "adamw", Precision::bf16}), layout));
  const std::vector<std::string> found = plan::problems(plan);
  ASSERT_TRUE(found.empty()) << found.front();
  EXPECT_EQ(plan::plan_from_json(base::parse_json(base::write_json(plan::to_json(plan)), "plan.json")), plan);
  // What rows come from is on disk, and what they come to in the host's memory.
  int tables = 0;
  for (std::uint32_t index = 0; index < plan.classes.front().buffers.size(); ++index) {
    plan::Plan damaged = plan;
    plan::Buffer& buffer = damaged.classes.front().buffers[plan::BufferId{index}];
    if (buffer.tier == plan::Tier::device) continue;
    tables += buffer.tier == plan::Tier::disk ? 1 : 0;
    buffer.tier = plan::Tier::device;
    EXPECT_FALSE(plan::problems(damaged).empty()) << buffer.name;
  }
  EXPECT_EQ(tables, 3);
}

// Memory is for the rows of a step, not for those of the table.
TEST_F(RowsOnDisk, MemoryDoesNotGrowWithTheTable) {
  const auto arenas = [&](std::int64_t vocab) {
    Task task = task_of({""});
    task.steps = 1;
    task.model.vocab = vocab;
    Layout layout = layout_of(8);
    layout.strategy.tile = base::Bytes{32'768};  // the head's weight grows too: it comes by tiles
    layout.strategy.offload = {.optimizer = kDisk, .gradients = kDisk, .params = kDisk, .activations = {}};
    return train(task, layout);
  };
  const Outcome few = arenas(2'000);
  const Outcome many = arenas(8'000);
  EXPECT_EQ(many.arena, few.arena);
  EXPECT_LE(many.host_arena, few.host_arena + 4096);
  EXPECT_GE(many.disk_arena - few.disk_arena, 6'000 * 4096);  // what the head has there grows beside it
}

TEST_F(RowsOnDisk, WhatCannotBeIsRefused) {
  const auto refused = [&](Task task, const Layout& layout) {
    return tests::refusal(
        [&] {
          strategy::require_legal(layout.strategy, 4);
          train::plan_session(options_for(task, layout));
        },
        base::ErrorKind::not_legal);
  };
  Task tied = task_of({""});
  tied.model.tied = true;
  EXPECT_NE(refused(tied, layout_of(2)).find("use \"model.tied\": false"), std::string::npos) << refused(tied, layout_of(2));
  const auto expect_refused = [&](const auto& change, const std::string& why) {
    Layout layout = layout_of(2);
    change(layout.strategy);
    const std::string message = refused(task_of({""}), layout);
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  expect_refused([](strategy::Strategy& s) { s.delayed_update = true, s.offload.optimizer = kHost; },
                 "\"delayed_update\" a gradient waits");
  expect_refused([](strategy::Strategy& s) { s.carry_update = strategy::CarryUpdate::always, s.offload.optimizer = kHost; },
                 "\"carry_update\": \"always\" an update waits");
  expect_refused([](strategy::Strategy& s) { s.pipe = 2, s.schedule = "2bw", s.flush_every = 2; }, "several steps are under way");
  Task wide = task_of({""});
  wide.model.width = 100'000;
  wide.model.layers = 1;
  wide.model.ffn = 8;
  wide.model.head_dim = 25'000;
  EXPECT_NE(refused(wide, layout_of(8)).find("that are read at once"), std::string::npos) << refused(wide, layout_of(8));
}

TEST_F(RowsOnDisk, NoFaultOfTheDiskIsSilent) {
  Task task = task_of({""});
  task.model.layers = 1;
  task.model.vocab = 60;
  task.samples = 2;
  task.steps = 2;
  expect_no_silent_fault(task, layout_of(2), 37);
}

}  // namespace
}  // namespace plimsoll::ranks

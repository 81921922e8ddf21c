// Leaner optimizer state: a split master is the f32 master to the bit in every layout; what is rounded at random is rounded alike in every
// layout that has the same gradients; and the bytes are those of the closed form.
#include <bit>
#include <filesystem>

#include <gtest/gtest.h>

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "ranks/compare.h"
#include "ranks/layouts.h"
#include "support/refusal.h"
#include "train/stored/snapshot.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Master;
using model::Moments;
using model::Precision;

struct Mix {
  const char* name;
  Family family = families::gpt2();
  Precision precision = Precision::bf16;
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
  std::int64_t zero = 0;
  std::int64_t tile = 0;
  strategy::TierShare params = {};
  strategy::TierShare optimizer = {};
  bool delayed = false;
  double clip = 1.0;
};

constexpr strategy::TierShare kHost{.host = 1.0};
constexpr strategy::TierShare kDisk{.disk = 1.0};

class Lean : public testing::Test {
 protected:
  Layout layout_of(const Mix& mix) const {
    Layout layout{.strategy = {}, .micro = 1};
    layout.strategy.data = mix.data;
    layout.strategy.tensor = mix.tensor;
    layout.strategy.pipe = mix.pipe;
    layout.strategy.zero = mix.zero;
    layout.strategy.tile = base::Bytes{mix.tile};
    layout.strategy.offload.params = mix.params;
    layout.strategy.offload.optimizer = mix.optimizer;
    layout.strategy.delayed_update = mix.delayed;
    layout.strategy.bucket = base::Bytes{20'000};
    layout.disk_folder = folder_.path().string();
    return layout;
  }
  static Task task_of(const Mix& mix) {
    Task task{.model = small_model(mix.family), .precision = mix.precision, .clip = mix.clip, .samples = 8, .steps = 4};
    if (mix.tensor > 1) task.model.kv_heads = 4;
    return task;
  }

  tests::TemporaryFolder folder_;
};

class LeanInLayout : public Lean, public testing::WithParamInterface<Mix> {};

// Whatever the layout, its bits are those of the f32 master there.
TEST_P(LeanInLayout, SplitMastersAreF32Masters) {
  const Mix& mix = GetParam();
  for (const Moments moments : {Moments::f32, Moments::bf16}) {
    Task task = task_of(mix);
    task.moments = moments;
    const Outcome whole = train(task, layout_of(mix));
    task.master = Master::split;
    const Outcome split = train(task, layout_of(mix));
    expect_same_bits(split, whole);
    EXPECT_EQ(split.sent, split.predicted);
    const bool apart = mix.params != mix.optimizer;
    const std::int64_t saved = whole.arena + whole.host_arena + whole.disk_arena - split.arena - split.host_arena - split.disk_arena;
    EXPECT_EQ(saved > 0, !apart) << saved;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, LeanInLayout,
    testing::Values(Mix{.name = "gpt2"}, Mix{.name = "llama", .family = families::llama()}, Mix{.name = "bert", .family = families::bert()},
                    Mix{.name = "data2", .data = 2}, Mix{.name = "data2_zero1", .data = 2, .zero = 1},
                    Mix{.name = "data4_zero2", .data = 4, .zero = 2}, Mix{.name = "data2_zero3", .data = 2, .zero = 3},
                    Mix{.name = "tensor2", .tensor = 2}, Mix{.name = "pipe2", .pipe = 2},
                    Mix{.name = "data2_tensor2_zero3", .data = 2, .tensor = 2, .zero = 3}, Mix{.name = "tiles", .tile = 8'192},
                    Mix{.name = "optimizer_host", .optimizer = kHost}, Mix{.name = "both_host", .params = kHost, .optimizer = kHost},
                    Mix{.name = "both_host_not_clipped", .params = kHost, .optimizer = kHost, .clip = 0.0},
                    Mix{.name = "both_disk", .params = kDisk, .optimizer = kDisk}, Mix{.name = "optimizer_disk", .optimizer = kDisk},
                    Mix{.name = "part_host", .optimizer = {.host = 0.5}}, Mix{.name = "delayed_host", .optimizer = kHost, .delayed = true}),
    [](const auto& each) { return each.param.name; });

// Hundreds of steps, in which thousands of weights lie in the middle between two codes at some time.
TEST_F(Lean, SplitMastersAreF32MastersForHundredsOfSteps) {
  Task task = task_of({.name = ""});
  task.steps = 300;
  task.samples = 2;
  task.learning_rate = 1e-3f;
  const Outcome whole = train(task, layout_of({.name = ""}));
  task.master = Master::split;
  expect_same_bits(train(task, layout_of({.name = ""})), whole);
  EXPECT_LT(whole.losses.back(), whole.losses.front());
}

// Eight-bit products have bf16 weights too.
TEST_F(Lean, EightBitProductsHaveSplitMasters) {
  Task task{.model = small_model(families::gpt2()), .precision = Precision::fp8, .samples = 8};
  task.model.ffn = 112;
  Layout layout = layout_of({.name = ""});
  layout.micro = 4;  // rows of a product in sixteens
  const Outcome whole = train(task, layout);
  task.master = Master::split;
  expect_same_bits(train(task, layout), whole);
}

struct Forms {
  Master master;
  Moments moments;
  const char* optimizer = "adamw";
};

constexpr Forms kRounded[] = {{Master::none, Moments::f32},          {Master::f32, Moments::bf16},
                              {Master::none, Moments::bf16},         {Master::none, Moments::bf16, "momentum"},
                              {Master::none, Moments::bf16, "lion"}, {Master::none, Moments::bf16, "rmsprop"},
                              {Master::none, Moments::f32, "sgd"}};

Task with_forms(Task task, const Forms& forms) {
  task.master = forms.master;
  task.moments = forms.moments;
  task.optimizer = forms.optimizer;
  return task;
}

// Ranks that share out what they update, and tiers: the same bits as with everything in one place.
TEST_F(Lean, WhatIsRoundedIsRoundedAlikeEverywhere) {
  for (const Forms& forms : kRounded) {
    const Task task = with_forms(task_of({.name = ""}), forms);
    const Outcome alone = train(task, layout_of({.name = ""}));
    for (const Mix& mix : {Mix{.name = "host", .optimizer = kHost}, Mix{.name = "disk", .optimizer = kDisk},
                           Mix{.name = "both_host", .params = kHost, .optimizer = kHost}, Mix{.name = "half", .optimizer = {.host = 0.5}},
                           Mix{.name = "both_disk", .params = kDisk, .optimizer = kDisk}}) {
      SCOPED_TRACE(mix.name);
      expect_same_bits(train(task, layout_of(mix)), alone);
    }
    const Outcome ranks = train(task, layout_of({.name = "", .data = 4}));
    expect_close(ranks, alone, tolerance(Precision::bf16));
    for (const std::int64_t zero : {1, 2, 3}) {
      SCOPED_TRACE(zero);
      const Outcome shared = train(task, layout_of({.name = "", .data = 4, .zero = zero}));
      expect_same_bits(shared, ranks);
      EXPECT_EQ(shared.sent, shared.predicted);
    }
  }
}

// What the update keeps for each parameter: closed forms. Norms have weights in f32, without a master.
TEST_F(Lean, BytesAreTheClosedForm) {
  struct Expected {
    Forms forms;
    std::int64_t bytes;
  };
  for (const auto& [forms, bytes] :
       {Expected{{Master::f32, Moments::f32}, 12}, Expected{{Master::split, Moments::f32}, 10}, Expected{{Master::none, Moments::f32}, 8},
        Expected{{Master::f32, Moments::bf16}, 8}, Expected{{Master::split, Moments::bf16}, 6}, Expected{{Master::none, Moments::bf16}, 4},
        Expected{{Master::f32, Moments::f32, "momentum"}, 8}, Expected{{Master::none, Moments::bf16, "momentum"}, 2},
        Expected{{Master::none, Moments::f32, "sgd"}, 0}}) {
    const Task task = with_forms(task_of({.name = ""}), forms);
    train::Session session(options_for(task, layout_of({.name = ""})));
    std::int64_t expected = 0;
    const std::int64_t master = forms.master == Master::f32 ? 4 : forms.master == Master::split ? 2 : 0;
    for (const graph::Parameter& parameter : session.graph().parameters) {
      const base::TensorType& type = session.graph().values[parameter.weight].type;
      expected += type.shape.elements() * (type.dtype == base::DType::f32 ? bytes - master : bytes);
    }
    std::int64_t held = 0;
    for (const plan::Buffer& buffer : session.executor().rank_class().buffers) {
      if (buffer.kind == plan::BufferKind::master || buffer.kind == plan::BufferKind::state) held += buffer.type.bytes();
    }
    EXPECT_EQ(held, expected);
  }
}

// As a run that was never interrupted, and in another layout than the one that saved.
TEST_F(Lean, GoesOnFromACheckpointToTheBit) {
  for (const Forms& forms : {Forms{Master::split, Moments::f32}, Forms{Master::split, Moments::bf16}, Forms{Master::none, Moments::bf16}}) {
    Task task = with_forms(task_of({.name = ""}), forms);
    const Outcome expected = train(task, layout_of({.name = ""}));
    const auto run_step = [&](train::Session& session, std::uint32_t step) {
      for (std::int32_t index = 0; index < 8; ++index) fill(session, "train", index, index, task.model.vocab, step);
      return session.step({.learning_rate = task.learning_rate, .step = step, .valid_targets = valid_targets(task.samples)}).loss;
    };
    io::PosixFileSystem files;
    const io::Path path = folder_.path() / fmt::format("checkpoint{}{}", static_cast<int>(forms.master), static_cast<int>(forms.moments));
    std::filesystem::create_directories(path.string());
    {
      train::Session session(options_for(task, layout_of({.name = ""})));
      for (std::uint32_t step = 1; step <= 2; ++step) run_step(session, step);
      const checkpoint::SaveRequest request{.identity = {.run = "lean", .config = "0"}, .step = 2};
      checkpoint::save(files, path, request, train::sources_of(session, train::own_pieces(session)));
    }
    train::Session session(options_for(task, layout_of({.name = "", .params = kHost, .optimizer = kHost})));
    checkpoint::load(files, checkpoint::open(files, path / "step-00000002"), train::targets_of(session, train::held_pieces(session)));
    session.refresh_weights();
    std::vector<double> losses;
    for (std::uint32_t step = 3; step <= 4; ++step) losses.push_back(run_step(session, step));
    EXPECT_EQ(losses, std::vector<double>(expected.losses.begin() + 2, expected.losses.end()));
    for (const auto& [name, values] : expected.parameters) EXPECT_EQ(train::read_parameter(session, name), values) << name;
  }
}

// What is written as f32 is read as it was, with the middles between two codes.
TEST_F(Lean, WeightsFromElsewhereKeepTheirLowerHalves) {
  Task task = task_of({.name = ""});
  task.master = Master::split;
  train::Session session(options_for(task, layout_of({.name = ""})));
  const auto number = [](std::size_t index) {
    return std::bit_cast<float>(0x3F000000u + static_cast<std::uint32_t>(index) * 0x8000u + static_cast<std::uint32_t>(index % 3));
  };
  train::write_parameters(session, [&](const train::ParameterInfo& info, std::int64_t first_row, std::span<float> out) {
    const auto first = static_cast<std::size_t>(first_row * (info.shape.elements() / info.shape[0]));
    for (std::size_t index = 0; index < out.size(); ++index) out[index] = number(first + index);
  });
  for (const train::ParameterInfo& info : train::parameters_of(session)) {
    const std::vector<float> found = train::read_parameter(session, info.name);
    for (std::size_t index = 0; index < found.size(); ++index) ASSERT_EQ(found[index], number(index)) << info.name << " " << index;
  }
}

// Rows of a table on disk lie together with their state, in one type.
TEST_F(Lean, RowsOnDiskAreOfOneType) {
  Task task = task_of({.name = ""});
  task.model.tied = false;
  Layout layout = layout_of({.name = ""});
  layout.strategy.embedding_rows = strategy::EmbeddingRows::disk;
  task.moments = Moments::bf16;
  const std::string said = tests::refusal([&] { train(task, layout); }, base::ErrorKind::not_legal);
  EXPECT_NE(said.find("embed.tokens.m is bf16"), std::string::npos) << said;
  task.master = Master::none;
  EXPECT_EQ(train(task, layout).losses.size(), 4u);
}

}  // namespace
}  // namespace plimsoll::ranks

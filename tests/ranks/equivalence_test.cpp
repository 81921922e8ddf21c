// Every layout computes what one rank computes: to rounding where the sum over samples is cut differently, to the bit where
// only the place of tensors differs. What crosses the wire is what the plan says.
#include <gtest/gtest.h>

#include <optional>

#include "ops/step_scalars.h"
#include "ranks/compare.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

Layout layout_of(std::int64_t data, std::int64_t zero, std::int64_t micro = 1) {
  Layout layout{.strategy = {}, .micro = micro};
  layout.strategy.data = data;
  layout.strategy.zero = zero;
  layout.strategy.bucket = base::Bytes{20'000};
  return layout;
}

struct Mix {
  Family family;
  Precision precision;
  std::int64_t data;
  std::int64_t micro;
};

std::string name_of(const testing::TestParamInfo<Mix>& info) {
  static constexpr const char* kPrecisions[] = {"f32", "bf16", "fp16"};
  return fmt::format("{}_{}_data{}_micro{}", info.param.family->name, kPrecisions[static_cast<int>(info.param.precision)], info.param.data,
                     info.param.micro);
}

class DataRanks : public testing::TestWithParam<Mix> {};

TEST_P(DataRanks, EveryZeroStageIsOneRank) {
  const Mix& mix = GetParam();
  const Task task{.model = small_model(mix.family), .precision = mix.precision};
  const Outcome alone = train(task, layout_of(1, 0, mix.micro));
  const Outcome whole = train(task, layout_of(mix.data, 0, mix.micro));
  expect_close(whole, alone, tolerance(mix.precision));
  EXPECT_EQ(whole.sent, whole.predicted);
  for (std::int64_t zero : {1, 2, 3}) {
    SCOPED_TRACE(fmt::format("ZeRO {}", zero));
    const Outcome split = train(task, layout_of(mix.data, zero, mix.micro));
    expect_same_bits(split, whole);  // keep_grads: all stages reduce after the last micro-batch
    EXPECT_EQ(split.sent, split.predicted);
    EXPECT_LT(split.arena, whole.arena);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DataRanks,
                         testing::Values(Mix{families::gpt2(), Precision::f32, 2, 1}, Mix{families::gpt2(), Precision::f32, 2, 4},
                                         Mix{families::gpt2(), Precision::f32, 8, 1}, Mix{families::gpt2(), Precision::bf16, 4, 2},
                                         Mix{families::gpt2(), Precision::bf16, 4, 1}, Mix{families::gpt2(), Precision::fp16, 2, 2},
                                         Mix{families::llama(), Precision::f32, 4, 1}, Mix{families::llama(), Precision::bf16, 2, 4},
                                         Mix{families::bert(), Precision::f32, 4, 1}, Mix{families::bert(), Precision::fp16, 2, 1}),
                         name_of);

TEST(DataRanks, ReducingEveryMicroBatchIsTheSameToRounding) {
  const Task task{.model = small_model(families::bert())};
  const Outcome alone = train(task, layout_of(1, 0));
  for (std::int64_t zero : {2, 3}) {
    Layout layout = layout_of(2, zero);
    layout.strategy.keep_grads = false;
    const Outcome split = train(task, layout);
    expect_close(split, alone, tolerance(task.precision));
    EXPECT_EQ(split.sent, split.predicted);
  }
}

TEST(DataRanks, PrefetchAndKeptWeightsChangeNoBit) {
  const Task task{.model = small_model(families::gpt2())};
  const Outcome usual = train(task, layout_of(4, 3));
  for (std::int64_t prefetch : {0, 1, 7}) {
    for (bool keep : {false, true}) {
      Layout layout = layout_of(4, 3);
      layout.strategy.prefetch = prefetch;
      layout.strategy.keep_params = keep;
      const Outcome found = train(task, layout);
      expect_same_bits(found, usual);
      EXPECT_EQ(found.sent, found.predicted);
    }
  }
}

TEST(DataRanks, OneMainDeviceIsTheSameBits) {
  const Task task{.model = small_model(families::gpt2())};
  const Outcome ring = train(task, layout_of(4, 0));
  Layout layout = layout_of(4, 0);
  layout.strategy.reduce = strategy::Reduce::main;
  const Outcome main = train(task, layout);
  expect_same_bits(main, ring);
  EXPECT_EQ(main.sent, main.predicted);
}

class TensorRanks : public testing::TestWithParam<Mix> {};

// `micro` is the tensor degree here.
TEST_P(TensorRanks, SplitWeightsAreOneRank) {
  const Mix& mix = GetParam();
  Task task{.model = small_model(mix.family), .precision = mix.precision};
  task.model.kv_heads = 4;
  task.model.qk_norm = mix.family == families::llama();
  const Outcome alone = train(task, layout_of(1, 0, 2));
  for (std::int64_t zero : {0, 1, 2, 3}) {
    if (mix.data == 1 && zero > 0) continue;
    SCOPED_TRACE(fmt::format("ZeRO {}", zero));
    Layout layout = layout_of(mix.data, zero, 2);
    layout.strategy.tensor = mix.micro;
    const Outcome split = train(task, layout);
    expect_close(split, alone, tolerance(mix.precision));
    EXPECT_EQ(split.sent, split.predicted);
    EXPECT_LT(split.arena, alone.arena);
    for (const auto& [name, values] : alone.parameters) EXPECT_EQ(split.parameters.at(name).size(), values.size()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TensorRanks,
                         testing::Values(Mix{families::gpt2(), Precision::f32, 1, 2}, Mix{families::gpt2(), Precision::f32, 1, 3},
                                         Mix{families::gpt2(), Precision::f32, 2, 4}, Mix{families::gpt2(), Precision::bf16, 2, 2},
                                         Mix{families::gpt2(), Precision::fp16, 1, 4}, Mix{families::llama(), Precision::f32, 1, 2},
                                         Mix{families::llama(), Precision::f32, 4, 2}, Mix{families::llama(), Precision::bf16, 2, 3},
                                         Mix{families::bert(), Precision::f32, 2, 2}, Mix{families::bert(), Precision::bf16, 1, 4}),
                         name_of);

// ---- sequence parallelism

Layout by_sequence(std::int64_t data, std::int64_t tensor, std::int64_t zero, std::int64_t micro) {
  Layout layout = layout_of(data, zero, micro);
  layout.strategy.tensor = tensor;
  layout.strategy.sequence_parallel = true;
  return layout;
}

class SequenceRanks : public testing::TestWithParam<Mix> {};

// `micro` is the tensor degree here. Rows that the ranks do not divide, and dropout at every place, are in it.
TEST_P(SequenceRanks, RowsBetweenWeightsAreOneRank) {
  const Mix& mix = GetParam();
  Task task{.model = small_model(mix.family), .precision = mix.precision};
  task.model.heads = task.model.kv_heads = 8;
  task.model.head_dim = 8;
  task.model.dropout = task.model.embedding_dropout = task.model.attention_dropout = 0.1;
  const Outcome alone = train(task, layout_of(1, 0, 1));
  for (std::int64_t zero : {0, 3}) {
    if (mix.data == 1 && zero > 0) continue;
    SCOPED_TRACE(fmt::format("ZeRO {}", zero));
    const Outcome split = train(task, by_sequence(mix.data, mix.micro, zero, 1));
    expect_close(split, alone, tolerance(mix.precision));
    EXPECT_EQ(split.sent, split.predicted);
    EXPECT_LT(split.arena, alone.arena);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, SequenceRanks,
                         testing::Values(Mix{families::gpt2(), Precision::f32, 1, 2}, Mix{families::gpt2(), Precision::f32, 1, 5},
                                         Mix{families::gpt2(), Precision::bf16, 2, 2}, Mix{families::gpt2(), Precision::fp16, 1, 4},
                                         Mix{families::llama(), Precision::f32, 2, 3}, Mix{families::llama(), Precision::bf16, 1, 4},
                                         Mix{families::bert(), Precision::f32, 1, 3}, Mix{families::bert(), Precision::f32, 2, 2}),
                         name_of);

TEST(SequenceRanks, RecomputeChangesNoBit) {
  Task task{.model = small_model(families::gpt2())};
  task.model.dropout = 0.1;
  const Outcome kept = train(task, by_sequence(2, 2, 3, 1));
  for (const strategy::Recompute recompute : {strategy::Recompute::full, strategy::Recompute::selective}) {
    Layout layout = by_sequence(2, 2, 3, 1);
    layout.strategy.recompute = recompute;
    const Outcome again = train(task, layout);
    expect_same_bits(again, kept);
    EXPECT_EQ(again.sent, again.predicted);
  }
}

TEST(SequenceRanks, BytesAreTheClosedForm) {
  const std::int64_t ranks = 4;
  Task task{.model = small_model(families::gpt2())};
  task.model.layers = 3;
  const std::int64_t micro = 2;
  const std::int64_t micro_batches = task.samples / micro;
  const auto tensor_bytes = [&](bool by_rows) {
    Layout layout = by_sequence(1, ranks, 0, micro);
    layout.strategy.sequence_parallel = by_rows;
    const plan::Plan plan = train::plan_session(options_for(task, layout));
    return plan::wire_bytes(plan, *plan::find_program(plan.classes[0], "train"), ops::Axis::tensor, 0).count;
  };
  const std::int64_t layers = task.model.layers;
  const std::int64_t width = task.model.width;
  // One reduce-scatter or all-gather of the activations, of which an all-reduce is two.
  const std::int64_t once = (ranks - 1) * (micro * kSequence * width / ranks) * 4;
  const std::int64_t losses = (ranks - 1) * micro * kSequence * 2 * 4;
  const std::int64_t scalars = (ranks - 1) * static_cast<std::int64_t>(sizeof(ops::StepScalars));
  EXPECT_EQ(tensor_bytes(false), micro_batches * (2 * (4 * layers + 2) * once + losses) + scalars);
  // What weights take whole is gathered for the forward and again for the backward pass (2 a layer, 1 for the head), and norms and
  // biases behind sums are summed over the ranks once a step: 6 vectors a layer and 2 at the end.
  const std::int64_t vectors = (6 * layers + 2) * 2 * (ranks - 1) * (width / ranks) * 4;
  EXPECT_EQ(tensor_bytes(true), micro_batches * ((2 * (4 * layers + 2) + 2 * layers + 1) * once + losses) + vectors + scalars);
}

TEST(SequenceRanks, WhatIsKeptBetweenWeightsIsDealtOut) {
  const Task task{.model = small_model(families::gpt2())};
  const std::int64_t micro = 2;
  const base::Shape whole{micro, kSequence, task.model.width};
  const auto kept = [&](bool by_rows, const base::Shape& shape) {
    Layout layout = by_sequence(1, 4, 0, micro);
    layout.strategy.sequence_parallel = by_rows;
    const plan::Plan plan = train::plan_session(options_for(task, layout));
    std::int64_t count = 0;
    for (const plan::Buffer& buffer : plan.classes[1].buffers)
      count += buffer.kind == plan::BufferKind::activation && buffer.type.shape == shape ? 1 : 0;
    return count;
  };
  const std::int64_t before = kept(false, whole);
  EXPECT_GT(before, 0);
  EXPECT_EQ(kept(true, whole), 0);
  EXPECT_EQ(kept(true, {micro * kSequence / 4, task.model.width}), before);
}

TEST(SequenceRanks, FewerRowsThanRanksAreRefused) {
  Task task{.model = small_model(families::gpt2())};
  train::SessionOptions options = options_for(task, by_sequence(1, 4, 0, 1));
  options.training.micro_batch.sequence = 3;
  try {
    train::plan_session(options);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::not_legal);
    EXPECT_NE(std::string(error.what()).find("3 rows (samples x sequence) for 4 tensor ranks"), std::string::npos) << error.what();
  }
}

// ---- fewer key-value heads than ranks

struct Sharing {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t data;
  std::int64_t tensor;
  bool by_rows;
};

class SharedHeads : public testing::TestWithParam<Sharing> {};

TEST_P(SharedHeads, AreOneRank) {
  const Sharing& sharing = GetParam();
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    Task task{.model = small_model(families::llama()), .precision = precision, .clip = 0.5};
    task.model.heads = sharing.heads;
    task.model.kv_heads = sharing.kv_heads;
    task.model.head_dim = 64 / sharing.heads;
    task.model.qk_norm = true;
    task.model.qkv_bias = task.model.out_bias = true;
    task.model.attention_dropout = 0.1;
    const Outcome alone = train(task, layout_of(1, 0, 2));
    for (std::int64_t zero : {0, 1, 2, 3}) {
      if (sharing.data == 1 && zero > 0) continue;
      SCOPED_TRACE(fmt::format("ZeRO {} {}", zero, precision == Precision::f32 ? "f32" : "bf16"));
      Layout layout = layout_of(sharing.data, zero, 2);
      layout.strategy.tensor = sharing.tensor;
      layout.strategy.sequence_parallel = sharing.by_rows;
      const Outcome split = train(task, layout);
      expect_close(split, alone, tolerance(precision));
      EXPECT_EQ(split.sent, split.predicted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, SharedHeads,
                         testing::Values(Sharing{4, 2, 1, 4, false}, Sharing{4, 2, 2, 4, false}, Sharing{8, 1, 1, 4, true},
                                         Sharing{8, 2, 1, 8, false}),
                         [](const auto& test) {
                           return fmt::format("heads{}_{}_data{}_tensor{}{}", test.param.heads, test.param.kv_heads, test.param.data,
                                              test.param.tensor, test.param.by_rows ? "_rows" : "");
                         });

TEST(SharedHeads, ThatDoNotDivideAreRefused) {
  Task task{.model = small_model(families::llama())};
  Layout layout = layout_of(1, 0, 1);
  layout.strategy.tensor = 3;
  try {
    train::plan_session(options_for(task, layout));
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::not_legal);
    EXPECT_NE(std::string(error.what()).find("has 2 units that must stay together; set \"tensor\" to 2 or less, or 4"), std::string::npos)
        << error.what();
  }
}

// ---- hybrid sharding

TEST(HybridRanks, EveryStageIsOneRank) {
  for (const Family family : {families::gpt2(), families::llama()}) {
    for (const bool keep : {true, false}) {
      const Task task{.model = small_model(family), .precision = family == families::gpt2() ? Precision::f32 : Precision::bf16};
      const Outcome alone = train(task, layout_of(1, 0));
      std::optional<Outcome> first;
      for (std::int64_t zero : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("ZeRO {} keep {}", zero, keep));
        Layout layout = layout_of(4, zero);
        layout.strategy.zero_group = 2;
        layout.strategy.keep_grads = keep;
        const Outcome split = train(task, layout);
        expect_close(split, alone, tolerance(task.precision));
        EXPECT_EQ(split.sent, split.predicted);
        if (keep && first) expect_same_bits(split, *first);
        if (!first) first = split;
      }
    }
  }
}

TEST(HybridRanks, ComposeWithTensorRanks) {
  Task task{.model = small_model(families::llama())};
  const Outcome alone = train(task, layout_of(1, 0, 2));
  Layout layout = by_sequence(4, 2, 3, 2);
  layout.strategy.zero_group = 2;
  const Outcome split = train(task, layout);
  expect_close(split, alone, tolerance(task.precision));
  EXPECT_EQ(split.sent, split.predicted);
}

// Inside a group what ZeRO sends in a group of that size; across, an all-reduce of the shards once a step.
TEST(HybridRanks, BytesAreTheClosedForm) {
  const auto plan_of = [](std::int64_t zero, std::int64_t data, std::int64_t group) {
    Layout layout = layout_of(data, zero);
    layout.strategy.zero_group = group;
    const Task task{.model = small_model(families::gpt2()), .samples = data};
    return train::plan_session(options_for(task, layout));
  };
  const auto sent = [](const plan::Plan& plan, ops::Axis axis) {
    return plan::wire_bytes(plan, *plan::find_program(plan.classes[0], "train"), axis, 0).count;
  };
  const auto scalars = static_cast<std::int64_t>(sizeof(ops::StepScalars));
  for (std::int64_t zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    const plan::Plan plan = plan_of(zero, 4, 2);
    std::int64_t shards = 0;  // bytes of a group's gradient shards, and of gradients that stay whole
    std::int64_t whole = 0;
    const plan::RankClass& rank_class = plan.classes[0];
    for (std::uint32_t index = 0; index < rank_class.buffers.size(); ++index) {
      const plan::Buffer& buffer = rank_class.buffers[plan::BufferId{index}];
      if (buffer.kind == plan::BufferKind::state && buffer.name.ends_with(".m"))
        (rank_class.part_of({index}).shard > 0 ? shards : whole) += buffer.type.bytes();
    }
    ASSERT_GT(shards, 0);
    if (zero < 3) {
      EXPECT_EQ(sent(plan, ops::Axis::data_inner), 2 * shards + scalars);
    }
    EXPECT_EQ(sent(plan, ops::Axis::data_inner), sent(plan_of(zero, 2, 0), ops::Axis::data) - whole);
    EXPECT_EQ(sent(plan, ops::Axis::data_outer), shards + scalars);
    EXPECT_EQ(sent(plan, ops::Axis::data), 2 * whole * 3 / 4);
  }
}

}  // namespace
}  // namespace plimsoll::ranks

// Whole models on a GPU: what the processor computes, the same bits every time, and every layout of ranks (threads that share the
// one GPU) what one rank computes.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/cuda/load/cuda_backend.h"
#include "ranks/compare.h"
#include "ranks/layouts.h"
#include "strategy/legality.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

struct Mix {
  const char* name;
  Family family;
  Precision precision;
};

Layout layout_of(std::int64_t data, std::int64_t tensor, std::int64_t zero, std::int64_t micro = 2) {
  Layout layout{.strategy = {}, .micro = micro};
  layout.strategy.data = data;
  layout.strategy.tensor = tensor;
  layout.strategy.zero = zero;
  layout.strategy.bucket = base::Bytes{20'000};
  return layout;
}

class OnGpu : public testing::TestWithParam<Mix> {
 protected:
  Task task(bool gpu = true) const {
    return {.model = small_model(GetParam().family),
            .precision = GetParam().precision,
            .steps = 4,  // issued, captured, replayed
            .backend = gpu ? &executor::cuda_backend() : nullptr};
  }
  double limit() const { return tolerance(GetParam().precision); }
};

TEST_P(OnGpu, IsTheProcessor) { expect_close(train(task(), layout_of(1, 1, 0)), train(task(false), layout_of(1, 1, 0)), limit()); }

TEST_P(OnGpu, IsTheSameEveryTime) {
  const Outcome first = train(task(), layout_of(1, 1, 0));
  const Outcome second = train(task(), layout_of(1, 1, 0));
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.norms, second.norms);
  EXPECT_EQ(first.parameters, second.parameters);
}

TEST_P(OnGpu, EveryLayoutIsOneRank) {
  const Outcome alone = train(task(), layout_of(1, 1, 0));
  for (const Layout& layout : {layout_of(1, 1, 0, 4), layout_of(2, 1, 0), layout_of(2, 1, 1), layout_of(4, 1, 2), layout_of(2, 1, 3),
                               layout_of(1, 2, 0), layout_of(2, 2, 1)}) {
    SCOPED_TRACE(strategy::describe(layout.strategy));
    expect_close(train(task(), layout), alone, limit());
  }
}

TEST_P(OnGpu, RecomputingGivesTheSameBits) {
  Layout again = layout_of(1, 1, 0);
  again.strategy.recompute = strategy::Recompute::full;
  EXPECT_EQ(train(task(), again).losses, train(task(), layout_of(1, 1, 0)).losses);
}

TEST_P(OnGpu, PipelinesAreOneRank) {
  const Outcome alone = train(task(), layout_of(1, 1, 0));
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    Layout layout = layout_of(1, 1, 0);
    layout.strategy.pipe = 2;
    layout.strategy.schedule = schedule;
    SCOPED_TRACE(strategy::describe(layout.strategy));
    expect_close(train(task(), layout), alone, limit());
    layout.strategy.data = 2;
    layout.strategy.zero = 1;
    layout.micro = 1;
    expect_close(train(task(), layout), alone, limit());
  }
}

// With ranks that share state out, too; tiers_test.cpp has one rank.
TEST_P(OnGpu, OptimizerOnTheHostIsTheSameBits) {
  Layout layout = layout_of(2, 1, 2);
  const Outcome device = train(task(), layout);
  layout.strategy.offload.optimizer.host = 1.0;
  expect_same_bits(train(task(), layout), device);
}

// 48 rows: products of 8-bit operands want multiples of 16.
TEST(EightBits, AreTheProcessors) {
  for (const Family family : {families::gpt2(), families::llama()}) {
    for (const std::int64_t history : {0, 3}) {
      SCOPED_TRACE(fmt::format("{} history {}", family->name, history));
      Task task{.model = small_model(family), .precision = Precision::fp8, .amax_history = history, .steps = 6};
      const Outcome processor = train(task, layout_of(1, 1, 0, 4));
      task.backend = &executor::cuda_backend();
      const Outcome gpu = train(task, layout_of(1, 1, 0, 4));
      expect_close(gpu, processor, 2e-2);
      EXPECT_EQ(train(task, layout_of(1, 1, 0, 4)).parameters, gpu.parameters) << "other bits in a second run";
      Layout again = layout_of(1, 1, 0, 4);
      again.strategy.recompute = strategy::Recompute::full;
      EXPECT_EQ(train(task, again).losses, gpu.losses);
      task.precision = Precision::bf16;
      const Outcome sixteen = train(task, layout_of(1, 1, 0, 4));
      // Before the first update: what follows are two trainings.
      EXPECT_NEAR(gpu.losses.front(), sixteen.losses.front(), 2e-2 * sixteen.losses.front());
    }
  }
}

TEST(EightBits, EveryLayoutIsOneRank) {
  for (const std::int64_t history : {0, 3}) {
    const Task task{.model = small_model(families::gpt2()),
                    .precision = Precision::fp8,
                    .amax_history = history,
                    .steps = 4,
                    .backend = &executor::cuda_backend()};
    const Outcome alone = train(task, layout_of(1, 1, 0, 4));
    for (const Layout& layout : {layout_of(2, 1, 0, 4), layout_of(2, 1, 2, 4), layout_of(1, 2, 0, 4), layout_of(2, 2, 1, 4)}) {
      SCOPED_TRACE(strategy::describe(layout.strategy));
      expect_close(train(task, layout), alone, tolerance(Precision::bf16));
    }
  }
}

// A run that stops says where its numbers first were not finite.
TEST(NotFinite, IsNamed) {
  const Task task{.model = small_model(families::llama()), .samples = 2, .backend = &executor::cuda_backend()};
  struct Spoilt {
    const char* parameter;
    float with;
    const char* words;
  };
  for (const Spoilt& spoilt : {Spoilt{"blocks.1.ffn.down.weight", 3e38f, "[linear] gave"},
                               Spoilt{"blocks.0.ffn.down.weight", std::nanf(""), "[linear] read blocks.0.ffn.down.weight"}}) {
    train::Session session(options_for(task, layout_of(1, 1, 0)));
    train::write_parameters(session, [&](const train::ParameterInfo& info, std::int64_t, std::span<float> rows) {
      std::fill(rows.begin(), rows.end(), info.name == spoilt.parameter ? spoilt.with : 1.0f);
    });
    fill(session, "train", 0, 0, task.model.vocab, 1);
    executor::Timeline timeline{.events = {}, .looks = true};
    session.step({.learning_rate = 0.0f, .step = 1, .valid_targets = valid_targets(2)}, &timeline);
    ASSERT_TRUE(timeline.not_finite.has_value());
    EXPECT_TRUE(timeline.not_finite->text.starts_with(spoilt.words)) << timeline.not_finite->text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, OnGpu,
    testing::Values(Mix{"gpt2_f32", families::gpt2(), Precision::f32}, Mix{"gpt2_bf16", families::gpt2(), Precision::bf16},
                    Mix{"gpt2_fp16", families::gpt2(), Precision::fp16}, Mix{"llama_f32", families::llama(), Precision::f32},
                    Mix{"llama_bf16", families::llama(), Precision::bf16}, Mix{"bert_f32", families::bert(), Precision::f32}),
    [](const auto& mix) { return mix.param.name; });

}  // namespace
}  // namespace plimsoll::ranks

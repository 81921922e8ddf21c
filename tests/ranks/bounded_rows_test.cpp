// Micro-batches with room for more rows than they have: the bits of a dense batch of just those rows, the bound's memory, the expected
// share's time, and one answer on all ranks where there are too many.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "cluster/presets.h"
#include "collectives/local/threads.h"
#include "executor/sim/script.h"
#include "graph/live_rows.h"
#include "plan/verify.h"
#include "report/waterline_text.h"
#include "support/refusal.h"
#include "train/session/session.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

constexpr std::int64_t kVocab = 61;
constexpr std::int64_t kWidth = 48;
constexpr std::int64_t kBound = 40;

struct Rows {
  bool bounded = true;
  std::int64_t room = kBound;  // rows of a micro-batch
  double expected = 1.0;
};

// Everything of a transformer that works row by row.
graph::WriteForward forward_of_rows(const Rows& rows) {
  return [rows](graph::Builder& build) {
    build.block("embed", graph::BlockKind::opening);
    if (rows.bounded) build.bound_rows(rows.expected);
    const graph::ValueId table = build.parameter("embed.tokens", {kVocab, kWidth}, graph::normal(0.5));
    graph::ValueId x = build.embed({{build.tokens(), table}}, "embed");
    build.block("layer");
    graph::ValueId z = build.norm(x, "layer.norm", {});
    z = build.activation(build.linear(z, "layer.up", 3 * kWidth, {.bias = true}), ops::ActivationKind::gelu_tanh, "layer.active");
    x = build.residual(x, build.linear(z, "layer.down", kWidth, {.bias = true}), 0.0, "layer.sum");
    build.block("head", graph::BlockKind::closing);
    build.head(build.norm(x, "head.norm", {.kind = ops::NormKind::rms, .bias = false}), table);
  };
}

train::SessionOptions options_for(const Rows& rows, std::int32_t micro_batches = 1) {
  train::SessionOptions options{.forward = forward_of_rows(rows), .name = "rows", .training = {}};
  options.training.micro_batch = {.samples = 1, .sequence = rows.room};
  options.training.accumulates = micro_batches > 1;
  options.micro_batches = micro_batches;
  options.threads = 1;
  options.evaluate = true;
  return options;
}

// `count` rows of a micro-batch, and garbage behind them.
void fill(train::Session& session, std::string_view program, std::int32_t micro_batch, std::int64_t count, std::int32_t seed) {
  const auto tokens = session.input(program, "tokens", micro_batch);
  const auto targets = session.input(program, "targets", micro_batch);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const bool live = static_cast<std::int64_t>(row) < count;
    const auto number = static_cast<std::int32_t>(row);
    tokens[row] = live ? (number * 7 + seed * 3) % kVocab : 1'000'000 + number;
    targets[row] = live ? (row % 6 == 5 ? -1 : (number * 11 + seed) % kVocab) : -77'777;
  }
  const auto rows = session.input(program, "rows", micro_batch);
  if (!rows.empty()) rows[0] = static_cast<std::int32_t>(count);
}

struct Trained {
  std::vector<double> losses, norms;
  double evaluation = 0.0;
  std::map<std::string, std::vector<float>> parameters;
};

// Three steps of micro-batches of `counts` rows, dealt out to the ranks in turn.
Trained train_rank(train::SessionOptions options, const std::vector<std::int64_t>& counts, collectives::Transport* transport) {
  options.transport = transport;
  train::Session session(options);
  EXPECT_TRUE(plan::problems(session.plan()).empty());
  const auto first = static_cast<std::size_t>(session.rank() * options.micro_batches);
  Trained trained;
  const auto fill_all = [&](std::string_view program, std::int32_t seed) {
    for (std::int32_t micro_batch = 0; micro_batch < options.micro_batches; ++micro_batch) {
      const std::size_t number = first + static_cast<std::size_t>(micro_batch);
      fill(session, program, micro_batch, counts[number], seed + static_cast<std::int32_t>(number));
    }
  };
  for (std::uint32_t step = 1; step <= 3; ++step) {
    fill_all("train", static_cast<std::int32_t>(step));
    const train::StepResult result = session.step({.learning_rate = 1e-2f, .step = step, .valid_targets = 50});
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.gradient_norm);
  }
  fill_all("evaluate", 0);
  trained.evaluation = session.evaluate();
  for (const train::ParameterInfo& info : train::parameters_of(session))
    trained.parameters[info.name] = train::read_parameter(session, info.name);
  return trained;
}

void expect_same_bits(const Trained& found, const Trained& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.evaluation, expected.evaluation);
  for (const auto& [name, values] : expected.parameters) EXPECT_EQ(found.parameters.at(name), values) << name;
}

TEST(BoundedRows, AreADenseBatchOfThoseThereAre) {
  for (const std::int64_t count : {std::int64_t{9}, std::int64_t{23}, std::int64_t{39}, kBound}) {
    SCOPED_TRACE(count);
    expect_same_bits(train_rank(options_for({}), {count}, nullptr),
                     train_rank(options_for({.bounded = false, .room = count}), {count}, nullptr));
  }
}

// What is made again, cut into tiles, or lives in another tier: the same bits as of a dense batch with the same strategy.
TEST(BoundedRows, GoWithUsesOfMemory) {
  struct Use {
    const char* name;
    std::function<void(strategy::Strategy&)> set;
  };
  const strategy::TierShare host{.host = 1.0};
  const std::vector<Use> uses{
      {"full recompute", [](strategy::Strategy& use) { use.recompute = strategy::Recompute::full; }},
      {"selective recompute", [](strategy::Strategy& use) { use.recompute = strategy::Recompute::selective; }},
      {"tiles", [](strategy::Strategy& use) { use.tile = base::Bytes{16'000}; }},
      {"activations", [&](strategy::Strategy& use) { use.offload.activations = host; }},
      {"optimizer", [&](strategy::Strategy& use) { use.offload.optimizer = host; }},
      {"carried",
       [&](strategy::Strategy& use) {
         use.offload.optimizer = host;
         use.carry_update = strategy::CarryUpdate::always;
       }},
      {"everything",
       [&](strategy::Strategy& use) {
         use.recompute = strategy::Recompute::full;
         use.keep_grads = false;
         use.offload = {.optimizer = host, .gradients = host, .params = host, .activations = host};
       }},
  };
  for (const Use& use : uses) {
    SCOPED_TRACE(use.name);
    const auto with = [&](const Rows& rows) {
      train::SessionOptions options = options_for(rows);
      use.set(options.strategy);
      return options;
    };
    for (const std::int64_t count : {std::int64_t{23}, kBound})
      expect_same_bits(train_rank(with({}), {count}, nullptr), train_rank(with({.bounded = false, .room = count}), {count}, nullptr));
  }
}

// Micro-batches of several lengths in one plan, one of them empty: the sum of dense steps, which a larger bound does not change.
TEST(BoundedRows, DifferFromMicroBatchToMicroBatch) {
  const std::vector<std::int64_t> counts{23, 0, 40, 11};
  const Trained found = train_rank(options_for({}, 4), counts, nullptr);
  expect_same_bits(train_rank(options_for({.room = 64}, 4), counts, nullptr), found);
  Trained without = train_rank(options_for({}, 3), {23, 40, 11}, nullptr);
  EXPECT_TRUE(std::isfinite(found.losses[2]));
  EXPECT_LT(found.losses[2], found.losses[0]);
  EXPECT_EQ(without.losses.size(), found.losses.size());
}

TEST(BoundedRows, AnEmptyBatchHasNoGradient) {
  const Trained found = train_rank(options_for({}), {0}, nullptr);
  EXPECT_EQ(found.losses, std::vector<double>(3, 0.0));
  EXPECT_EQ(found.norms, std::vector<double>(3, 0.0));
}

TEST(BoundedRows, DataRanksHaveTheirOwn) {
  const std::vector<std::int64_t> counts{23, 37};
  std::vector<Trained> all;
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    train::SessionOptions options = options_for({});
    options.strategy.data = 2;
    options.strategy.zero = zero;
    std::mutex mutex;
    collectives::local::run_threads(2, [&](collectives::Transport& transport) {
      Trained trained = train_rank(options, counts, &transport);
      const std::lock_guard lock(mutex);
      all.push_back(std::move(trained));
    });
  }
  for (const Trained& other : all) EXPECT_EQ(other.losses, all[0].losses);
  for (std::size_t index = 0; index < all.size(); index += 2) EXPECT_EQ(all[index].parameters, all[index + 1].parameters);
  const Trained alone = train_rank(options_for({}, 2), counts, nullptr);
  for (std::size_t step = 0; step < alone.losses.size(); ++step) EXPECT_NEAR(all[0].losses[step], alone.losses[step], 1e-5);
}

// Of two ranks one has too many rows: both say so in the same words, and neither updated anything. Then they go on.
TEST(BoundedRows, TooManyAreRefusedByAllRanksAlike) {
  for (const double clip : {0.0, 1.0}) {
    train::SessionOptions options = options_for({});
    options.training.optimizer.clip = clip;
    options.strategy.data = 2;
    std::mutex mutex;
    std::vector<std::string> messages;
    collectives::local::run_threads(2, [&](collectives::Transport& transport) {
      train::SessionOptions own = options;
      own.transport = &transport;
      train::Session session(own);
      const std::vector<float> before = train::read_parameter(session, "layer.up.weight");
      const auto step = [&](std::int64_t count, std::uint32_t number) {
        fill(session, "train", 0, count, static_cast<std::int32_t>(number));
        return session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = 50});
      };
      const std::string message = tests::refusal([&] { step(session.rank() == 0 ? kBound : kBound + 3, 1); });
      EXPECT_EQ(train::read_parameter(session, "layer.up.weight"), before);
      EXPECT_GT(step(kBound, 2).loss, 0.0);
      EXPECT_NE(train::read_parameter(session, "layer.up.weight"), before);
      const std::lock_guard lock(mutex);
      messages.push_back(message);
    });
    for (const std::string& message : messages)
      EXPECT_EQ(message, "a micro-batch has 43 rows, but there is room for 40: use smaller batches, or a larger bound");
  }
}

// The arena is that of the bound whatever is expected; prices are those of what is.
TEST(BoundedRows, MemoryIsTheBoundsAndTimeTheExpected) {
  struct Prices {
    base::Bytes arena;
    double flops = 0.0, seconds = 0.0;
  };
  const cluster::Cluster cluster = cluster::preset("dgx-h100");
  const auto prices_of = [&](const Rows& rows) {
    const plan::Plan plan = train::plan_session(options_for(rows));
    Prices prices{.arena = plan.classes[0].arena[0]};
    const executor::sim::Script script = executor::sim::priced(plan, "train", cluster);
    for (const executor::sim::Routine& routine : script.routines) {
      prices.flops += routine.flops;
      for (const executor::sim::Step& step : routine.steps) prices.seconds += step.seconds;
    }
    return prices;
  };
  const Prices half = prices_of({.room = 4096, .expected = 0.5});
  const Prices full = prices_of({.room = 4096});
  EXPECT_EQ(half.arena, full.arena);
  EXPECT_GT(full.flops, 0.0);
  EXPECT_EQ(half.flops, full.flops / 2.0);
  EXPECT_EQ(half.flops, prices_of({.bounded = false, .room = 2048}).flops);
  EXPECT_LT(half.seconds, full.seconds);
}

TEST(BoundedRows, AreNamedBesideTheMemory) {
  const auto waterline = [](const Rows& rows) { return report::waterline_text(train::plan_session(options_for(rows)), "train", {}); };
  EXPECT_NE(
      waterline({.room = 4096, .expected = 0.5}).find("\n  rows         at most 4,096, 2,048 expected: there is memory for all of them\n"),
      std::string::npos);
  EXPECT_EQ(waterline({.bounded = false, .room = 4096}).find("at most"), std::string::npos);
}

TEST(BoundedRows, WhatNeedsAllRowsIsRefused) {
  train::SessionOptions options = options_for({});
  options.forward = [](graph::Builder& build) {
    build.block("embed", graph::BlockKind::opening);
    build.bound_rows();
    const graph::ValueId table = build.parameter("embed.tokens", {kVocab, 3 * kWidth}, graph::normal(0.5));
    const graph::ValueId x = build.embed({{build.tokens(), table}}, "embed");
    const graph::ValueId mixed = build.attention(x, {.heads = {2, 2, kWidth / 2}}, 0.0, "attention");
    build.head(mixed, build.parameter("head.weight", {kVocab, kWidth}, graph::normal(0.5)));
  };
  EXPECT_NE(tests::refusal([&] { train::plan_session(options); }, base::ErrorKind::not_legal).find("needs all rows of its operands"),
            std::string::npos);
  options = options_for({});
  options.strategy.pipe = 2;
  EXPECT_NE(tests::refusal([&] { train::plan_session(options); }, base::ErrorKind::not_legal)
                .find("data ranks, recompute, tiles and other tiers can"),
            std::string::npos);
}

}  // namespace
}  // namespace plimsoll::ranks

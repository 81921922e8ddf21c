// all_to_all as a collective of the plan: by itself against the permutation that it is, and inside a model whose data ranks exchange
// samples in the forward pass, and so gradients in the backward pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "cluster/presets.h"
#include "collectives/local/threads.h"
#include "cost/transfer.h"
#include "executor/sim/simulate.h"
#include "plan/file.h"
#include "plan/traffic.h"
#include "plan/verify.h"
#include "ranks/layouts.h"
#include "support/refusal.h"

namespace plimsoll::ranks {
namespace {

using ops::Axis;

constexpr std::int64_t kVocab = 53;
constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kPart = 5;  // elements that each rank sends to each

ops::Collective exchange(std::int64_t members, std::int64_t tensors = 1, const Axis& axis = Axis::data) {
  return {.kind = ops::CollectiveKind::all_to_all, .axis = axis, .members = members, .tensors = tensors};
}

// A program that exchanges two states and puts what comes into two others.
graph::Graph exchanging(std::int64_t members) {
  graph::Graph graph;
  const graph::BlockId block = graph.blocks.add({.name = "exchange"});
  const auto state = [&](const std::string& name, const base::Shape& shape) {
    return graph.add_value(
        {.name = name,
         .type = {base::DType::f32, shape},
         .role = graph::Role::state,
         .block = block,
         .state = {.cut = ops::State::Cut::own, .merge = ops::State::Merge::first, .written = ops::State::Written::program}});
  };
  const base::Shape flat{members * kPart};
  const base::Shape wide{members, 3, 2};
  const std::vector<graph::ValueId> given{state("given.0", flat), state("given.1", wide)};
  const std::vector<graph::ValueId> target{state("made.0", flat), state("made.1", wide)};
  const std::vector<graph::ValueId> made = graph.add_node(exchange(members, 2), given, block, graph::Phase::forward, "exchanged");
  for (std::size_t index = 0; index < made.size(); ++index) {
    graph.add_node(ops::Move{.from = ops::Tier::device, .to = ops::Tier::device, .into = true}, {made[index], target[index]}, block,
                   graph::Phase::forward, fmt::format("put.{}", index));
  }
  return graph;
}

TEST(AllToAll, IsThePermutation) {
  for (const int ranks : {2, 3, 4}) {
    Layout layout{.strategy = {}, .micro = 1};
    layout.strategy.data = ranks;
    const Task task{.model = small_model(families::gpt2()), .samples = ranks};
    train::SessionOptions options = options_for(task, layout);
    options.programs = {{.name = "exchange", .write = [=](const graph::Graph&) { return exchanging(ranks); }}};
    collectives::local::run_threads(ranks, [&](collectives::Transport& transport) {
      train::SessionOptions own = options;
      own.transport = &transport;
      train::Session session(own);
      plan::verify(session.plan(), "lowering");
      const std::int32_t rank = session.rank();
      const auto number = [](std::int64_t from, std::int64_t index) { return static_cast<float>(1000 * from + index); };
      for (const std::string which : {"0", "1"}) {
        const std::span<float> given = session.buffers().view<float>("given." + which, plan::Access::write);
        for (std::size_t index = 0; index < given.size(); ++index) given[index] = number(rank, static_cast<std::int64_t>(index));
      }
      session.run("exchange");
      for (const auto& [which, part] : {std::pair<std::string, std::int64_t>{"0", kPart}, {"1", 6}}) {
        const std::span<const float> made = session.buffers().view<float>("made." + which, plan::Access::read);
        for (std::int64_t index = 0; index < part * ranks; ++index)
          EXPECT_EQ(made[static_cast<std::size_t>(index)], number(index / part, rank * part + index % part)) << which << " " << index;
      }
      const plan::Program& program = *plan::find_program(session.executor().rank_class(), "exchange");
      EXPECT_EQ(plan::wire_bytes(session.plan(), program, Axis::data, rank).count, (ranks - 1) * (kPart + 6) * 4);
    });
  }
}

// ---- in a model

void write_forward(std::int64_t data, graph::Builder& build) {
  build.block("embed", graph::BlockKind::opening);
  graph::ValueId x = build.embed({{build.tokens(), build.parameter("embed.tokens", {kVocab, kWidth}, graph::normal(0.5))}}, "embed");
  build.block("layer");
  graph::ValueId h = build.linear(x, "up", 2 * kWidth, {.bias = true, .init_std = 0.4, .deal = ops::split(0, 2 * kWidth)});
  h = build.all_to_all(h, Axis::data, data, "away");
  h = build.activation(h, ops::ActivationKind::gelu_tanh, "active");
  graph::ValueId y = build.linear(h, "down", kWidth, {.bias = true, .init_std = 0.4, .deal = ops::split(1, 2 * kWidth)});
  y = build.all_to_all(y, Axis::data, data, "home");
  x = build.residual(x, y, 0.0, "sum");
  build.block("head", graph::BlockKind::closing);
  build.head(x, build.parameter("head.weight", {kVocab, kWidth}, graph::normal(0.3)));
}

struct Found {
  std::vector<double> losses;
  std::vector<double> norms;
};

train::SessionOptions options_of(const strategy::Strategy& strategy, bool exchanges) {
  Task task{.model = small_model(families::gpt2()), .samples = 8};
  train::SessionOptions options = options_for(task, {.strategy = strategy, .micro = 2});
  const std::int64_t data = exchanges ? strategy.data : 1;
  options.forward = [data](graph::Builder& build) { write_forward(data, build); };
  options.evaluate = false;
  return options;
}

Found train(const strategy::Strategy& strategy, bool exchanges) {
  const train::SessionOptions options = options_of(strategy, exchanges);
  Found found;
  const auto body = [&](train::Session& session) {
    const std::int64_t place = session.plan().mesh.place(Axis::data, session.rank());
    for (std::uint32_t number = 1; number <= 3; ++number) {
      for (std::int32_t micro_batch = 0; micro_batch < options.micro_batches; ++micro_batch)
        fill(session, "train", micro_batch, (place * options.micro_batches + micro_batch) * 2, kVocab, number);
      const train::StepResult result = session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = valid_targets(8)});
      if (session.rank() > 0) continue;
      found.losses.push_back(result.loss);
      found.norms.push_back(result.gradient_norm);
    }
  };
  if (strategy.ranks() == 1) {
    train::Session session(options);
    body(session);
    return found;
  }
  collectives::local::run_threads(static_cast<int>(strategy.ranks()), [&](collectives::Transport& transport) {
    train::SessionOptions own = options;
    own.transport = &transport;
    train::Session session(own);
    body(session);
  });
  return found;
}

strategy::Strategy over(std::int64_t data, std::int64_t zero = 0, std::int64_t tensor = 1, std::int64_t pipe = 1) {
  strategy::Strategy strategy;
  strategy.data = data;
  strategy.zero = zero;
  strategy.tensor = tensor;
  strategy.pipe = pipe;
  return strategy;
}

TEST(AllToAll, ThereAndBackTrainsTheSameModel) {
  const Found alone = train(over(1), false);
  const Found plain = train(over(2), false);
  std::vector<strategy::Strategy> strategies{over(2), over(2, 1), over(2, 3), over(2, 1, 2), over(2, 1, 1, 2)};
  strategies.push_back(over(2));
  strategies.back().recompute = strategy::Recompute::full;
  for (const strategy::Strategy& strategy : strategies) {
    SCOPED_TRACE(fmt::format("ZeRO {} tensor {} pipe {}", strategy.zero, strategy.tensor, strategy.pipe));
    const Found found = train(strategy, true);
    ASSERT_EQ(found.losses.size(), alone.losses.size());
    for (std::size_t step = 0; step < found.losses.size(); ++step) {
      EXPECT_NEAR(found.losses[step], alone.losses[step], 2e-5);
      EXPECT_NEAR(found.norms[step], alone.norms[step], 1e-4 * alone.norms[step]);
    }
    // Until something is summed over other samples than before, not a bit differs.
    if (strategy.tensor == 1) {
      EXPECT_EQ(found.losses[0], plain.losses[0]);
    }
  }
}

TEST(AllToAll, IsPlannedStoredPricedAndSimulated) {
  const plan::Plan plan = train::plan_session(options_of(over(2), true));
  const plan::Plan without = train::plan_session(options_of(over(2), false));
  EXPECT_THAT(plan::problems(plan), testing::IsEmpty());
  EXPECT_EQ(plan::plan_from_json(plan::to_json(plan)), plan);
  // There and back in both passes, half of the activations each time: 2 samples x 12 positions, wide and narrow.
  const std::int64_t activations = 2 * kSequence * 4;
  const std::int64_t expected = 2 * activations * (2 * kWidth + kWidth) / 2;  // of one micro-batch
  std::int64_t found = 0;
  std::int64_t calls = 0;
  for (const plan::Traffic& traffic : plan::traffic_of(plan, *plan::find_program(plan.classes[0], "train"), 0)) {
    if (traffic.kind != "all_to_all") continue;
    found += traffic.bytes.count;
    calls += traffic.calls;
  }
  EXPECT_EQ(calls, 4 * 2);
  EXPECT_EQ(found, 2 * expected);
  const cluster::Cluster cluster = cluster::preset("dgx-h100");
  const executor::sim::Result with = executor::sim::simulate(plan, cluster);
  const executor::sim::Result plain = executor::sim::simulate(without, cluster);
  EXPECT_GT(with.seconds, plain.seconds);
  const auto inside = static_cast<std::size_t>(executor::sim::LinkClass::inside);
  EXPECT_NEAR(with.bytes[inside] - plain.bytes[inside], 2.0 * static_cast<double>(found), 1e-3);
}

TEST(AllToAll, WhatDoesNotDivideIsRefused) {
  train::SessionOptions options = options_of(over(3), true);
  options.training.micro_batch.samples = 2;
  EXPECT_THAT(tests::refusal([&] { train::plan_session(options); }), testing::HasSubstr("a first dim that the number of ranks divides"));
  const std::vector<base::TensorType> flat{{base::DType::f32, base::Shape{8}}};
  ops::Collective op = exchange(2);
  op.in_place = true;
  EXPECT_THAT(tests::refusal([&] { ops::definition_of(op).infer(op, flat); }), testing::HasSubstr("room for what comes"));
}

// A plan for another number of ranks, or over an axis that nobody is on.
TEST(AllToAll, IsVerifiedAgainstTheMesh) {
  plan::Plan plan = train::plan_session(options_of(over(2), true));
  const auto change = [&](const std::function<void(ops::Collective&)>& how) {
    plan::Plan changed = plan;
    for (plan::Procedure& procedure : changed.procedures) {
      for (plan::Instruction& instruction : procedure.instructions) {
        auto* collective = std::get_if<plan::Collective>(&instruction);
        if (collective != nullptr && collective->op.kind == ops::CollectiveKind::all_to_all) how(collective->op);
      }
    }
    const std::vector<std::string> problems = plan::problems(changed);
    return problems.empty() ? "" : problems.front();
  };
  EXPECT_THAT(change([](ops::Collective& op) { op.members = 4; }), testing::HasSubstr("has 4 members on an axis of 2"));
  EXPECT_THAT(change([](ops::Collective& op) { op.axis = Axis("nobody"); }), testing::HasSubstr("over an axis that no rank is on"));
}

}  // namespace
}  // namespace plimsoll::ranks

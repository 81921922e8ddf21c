// What ranks send each other, by codecs: of gradients, of weights that ZeRO 3 gathers, of activations between tensor ranks and between
// stages. Against what is sent as it is, and the bytes that transports count.
#include <gtest/gtest.h>

#include "ops/step_scalars.h"
#include "ranks/coded.h"
#include "ranks/compare.h"
#include "strategy/legality.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

using base::DType;
using codecs::Choice;
using codecs::Use;

Choice without_feedback(std::string_view name) {
  Choice choice = choice_of(name);
  choice.numbers = {};
  return choice;
}

// ---- bytes

// By closed form: what rank 0 sends less of gradients than without a codec.
std::int64_t saved_of_gradients(const Outcome& plain, const strategy::Strategy& strategy) {
  const std::int64_t unit = strategy.data * ops::kSumBlock;
  std::int64_t saved = 0;
  for (const auto& [name, values] : plain.parameters) {
    const std::int64_t elements = std::ssize(values);
    const bool split = strategy.zero > 0 && elements >= unit;
    const std::int64_t padded = (elements + unit - 1) / unit * unit;
    const codecs::Ask ask{.choice = strategy.communication.gradients,
                          .wanted = split ? codecs::Wanted::shard : codecs::Wanted::sum,
                          .type = {DType::f32, base::Shape{split ? padded : elements}},
                          .members = strategy.data};
    saved += codecs::plain_bytes(ask) - codecs::wire_bytes(ask);
  }
  return saved;
}

TEST(Codecs, SendTheBytesOfTheirClosedForms) {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    for (const std::int64_t data : {2, 4}) {
      const strategy::Strategy plain = over(data, zero);
      const Outcome before = train(small_task(), {.strategy = plain, .micro = 8 / data});
      for (const codecs::Codec* codec : codecs::codecs()) {
        const strategy::Strategy coded = with(plain, codecs::choice_of(*codec, Use::gradients));
        SCOPED_TRACE(strategy::describe(coded));
        const Outcome after = train(small_task(), {.strategy = coded, .micro = 8 / data});
        EXPECT_EQ(after.sent, after.predicted);
        EXPECT_EQ(before.sent[0] - after.sent[0], saved_of_gradients(before, coded));
        EXPECT_LT(after.sent[0], before.sent[0]);
      }
    }
  }
}

// bf16 sends half of what is gathered, which says how much that is.
TEST(Codecs, GatherTheBytesOfTheirClosedForms) {
  for (const std::int64_t data : {2, 4}) {
    const strategy::Strategy plain = over(data, 3);
    const std::int64_t before = train(small_task(), {.strategy = plain}).sent[0];
    const auto saved = [&](std::string_view name) {
      const Outcome after = train(small_task(), {.strategy = with(plain, {}, choice_of(name, Use::weights))});
      EXPECT_EQ(after.sent, after.predicted);
      return before - after.sent[0];
    };
    const std::int64_t gathered = 2 * saved("bf16");
    EXPECT_GT(gathered, 100'000);
    for (const std::string_view name : {"fp8", "int8", "int4"}) {
      const std::int64_t elements = gathered / base::size_of(DType::f32) / (data - 1) * data;
      const codecs::Ask ask{.choice = choice_of(name, Use::weights),
                            .wanted = codecs::Wanted::gather,
                            .type = {DType::f32, base::Shape{elements}},
                            .members = data};
      EXPECT_EQ(codecs::plain_bytes(ask), gathered);
      EXPECT_EQ(saved(name), gathered - codecs::wire_bytes(ask)) << name;
    }
  }
}

// ---- together with everything else

struct Case {
  std::string name;
  strategy::Strategy strategy;
  model::Precision precision = model::Precision::f32;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, strategy::Strategy strategy, model::Precision precision, auto&& change) {
    change(strategy);
    all.push_back({std::move(name), strategy, precision});
  };
  const auto nothing = [](strategy::Strategy&) {};
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16, model::Precision::fp16})
      add(fmt::format("ZeRO {}", zero), over(2, zero), precision, nothing);
  }
  for (const std::int64_t zero : {2, 3})
    add("reduced in each", over(2, zero), model::Precision::f32, [](strategy::Strategy& strategy) { strategy.keep_grads = false; });
  add("offloaded", over(2, 2), model::Precision::bf16, [](strategy::Strategy& strategy) {
    strategy.keep_grads = false;
    strategy.offload.optimizer.host = strategy.offload.gradients.host = 1.0;
  });
  add("optimizer on the host", over(2, 1), model::Precision::f32,
      [](strategy::Strategy& strategy) { strategy.offload.optimizer.host = 1.0; });
  add("recomputed", over(2, 3), model::Precision::f32,
      [](strategy::Strategy& strategy) { strategy.recompute = strategy::Recompute::full; });
  add("kept weights", over(2, 3), model::Precision::f32, [](strategy::Strategy& strategy) { strategy.keep_params = true; });
  add("tiles", over(2, 3), model::Precision::f32, [](strategy::Strategy& strategy) { strategy.tile = {12'000}; });
  add("tensor", over(2, 1, 2), model::Precision::f32, nothing);
  add("by rows", over(1, 0, 2), model::Precision::f32, [](strategy::Strategy& strategy) { strategy.sequence_parallel = true; });
  add("stages", over(2, 1, 1, 2), model::Precision::f32, nothing);
  add("tensor and stages", over(1, 0, 2, 2), model::Precision::bf16, nothing);
  add("all recomputed in stages", over(1, 0, 2, 2), model::Precision::f32,
      [](strategy::Strategy& strategy) { strategy.recompute = strategy::Recompute::full; });
  add("zb-h1", over(1, 0, 2, 2), model::Precision::f32, [](strategy::Strategy& strategy) { strategy.schedule = "zb-h1"; });
  return all;
}

TEST(Codecs, ComposeWithEverythingElse) {
  for (const Case& one : cases()) {
    const Task task = small_task(one.precision);
    const Outcome plain = train(task, {.strategy = one.strategy});
    for (const std::string_view name : {"bf16", "int8"}) {
      const Choice weights = one.strategy.zero == 3 ? choice_of(name, Use::weights) : Choice{};
      const strategy::Strategy coded = with(one.strategy, choice_of(name), weights, choice_of(name, Use::activations));
      SCOPED_TRACE(fmt::format("{}: {}", one.name, strategy::describe(coded)));
      const Outcome found = train(task, {.strategy = coded});
      EXPECT_EQ(found.sent, found.predicted);
      EXPECT_LE(found.sent[0], plain.sent[0]);
      expect_close(found, plain, name == "bf16" ? 1e-2 : 4e-2);
    }
  }
}

TEST(Codecs, AreRefusedWithTheReason) {
  const auto reasons = [](const strategy::Strategy& strategy) {
    return fmt::format("{}", fmt::join(strategy::reasons_against(strategy, 4), "; "));
  };
  strategy::Strategy main = with(over(2, 0), choice_of("bf16"));
  EXPECT_EQ(reasons(main), "");
  main.reduce = strategy::Reduce::main;
  EXPECT_NE(reasons(main).find("use \"ring\""), std::string::npos) << reasons(main);
  strategy::Strategy groups = with(over(4, 1), choice_of("int8"));
  groups.zero_group = 2;
  EXPECT_NE(reasons(groups).find("\"zero_group\" is 2; use 0, \"error_feedback\": false, or \"bf16\""), std::string::npos)
      << reasons(groups);
  groups.communication.gradients = without_feedback("int8");
  EXPECT_EQ(reasons(groups), "");
  strategy::Strategy asynchronous = with(over(2, 0, 1, 2), choice_of("int8"));
  asynchronous.schedule = "2bw";
  asynchronous.flush_every = 4;
  EXPECT_NE(reasons(asynchronous).find("use \"schedule\": \"1f1b\""), std::string::npos) << reasons(asynchronous);
}

}  // namespace
}  // namespace plimsoll::ranks

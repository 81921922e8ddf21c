// Sessions of small models: the same bits every time, a skipped step that changes nothing, memory that nobody reads
// before it is written.
#include "train/session/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plan/verify.h"
#include "support/refusal.h"
#include "support/small_model.h"

namespace plimsoll::train {
namespace {

model::Model small_model(model::Family family = families::gpt2()) { return tests::small_model(family, {}); }

SessionOptions options_for(const model::Model& model, model::Precision precision = model::Precision::f32) {
  SessionOptions options{.forward = forward_of(model), .name = "small", .training = {}};
  options.training.precision = precision;
  options.training.micro_batch = {.samples = 3, .sequence = 11};
  options.threads = 2;
  return options;
}

void fill(Session& session, std::string_view program, std::int32_t micro_batches, std::int32_t vocab, std::uint32_t step) {
  for (std::int32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    const auto tokens = session.input(program, "tokens", micro_batch);
    const auto targets = session.input(program, "targets", micro_batch);
    const auto positions = session.input(program, "positions", micro_batch);
    const auto samples = session.input(program, "samples", micro_batch);
    const auto segments = session.input(program, "segments", micro_batch);
    const auto types = session.input(program, "token_types", micro_batch);
    for (std::size_t index = 0; index < tokens.size(); ++index) {
      const auto value = static_cast<std::int32_t>(index * 7 + static_cast<std::size_t>(micro_batch) * 3 + step);
      tokens[index] = value % vocab;
      targets[index] = index % 5 == 4 ? -1 : (value + 7) % vocab;
      if (!positions.empty()) positions[index] = static_cast<std::int32_t>(index % 11);
      if (!segments.empty()) segments[index] = index % 11 < 9 ? 0 : -1;
      if (!types.empty()) types[index] = static_cast<std::int32_t>(index % 2);
    }
    for (std::size_t index = 0; index < samples.size(); ++index) samples[index] = micro_batch * 3 + static_cast<std::int32_t>(index);
  }
}

StepResult step(Session& session, std::int32_t micro_batches, std::uint32_t number, std::int32_t vocab = 41) {
  fill(session, "train", micro_batches, vocab, number);
  return session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = 27 * micro_batches});
}

// Everything that outlives a step, but the step scalars.
std::string state_of(Session& session) {
  std::string bytes;
  const plan::RankClass& rank_class = session.executor().rank_class();
  for (std::uint32_t index = 0; index < rank_class.buffers.size(); ++index) {
    const plan::Buffer& buffer = rank_class.buffers[plan::BufferId{index}];
    if (!buffer.persistent() || buffer.kind == plan::BufferKind::scalars) continue;
    bytes.append(reinterpret_cast<const char*>(session.executor().host_view(plan::BufferId{index})),
                 static_cast<std::size_t>(buffer.bytes.count));
  }
  return bytes;
}

struct Variant {
  const char* name;
  model::Family family;
  model::Precision precision;
  double dropout;
  std::int32_t micro_batches;
};

// 16 samples, so that 16 divides the rows.
TEST(Session, EightBitLayersLearnAsSixteenBitOnesDo) {
  for (const model::Family family : {families::gpt2(), families::llama()}) {
    const auto train = [&](model::Precision precision, std::int64_t history, std::int32_t micro_batches) {
      SessionOptions options = options_for(small_model(family), precision);
      options.training.micro_batch.samples = 16;
      options.training.amax_history = history;
      options.training.accumulates = micro_batches > 1;
      options.micro_batches = micro_batches;
      Session session(options);
      EXPECT_TRUE(plan::problems(session.plan()).empty());
      std::vector<double> losses;
      for (std::uint32_t number = 1; number <= 8; ++number) losses.push_back(step(session, micro_batches, number).loss);
      return losses;
    };
    for (const std::int32_t micro_batches : {1, 2}) {
      const std::vector<double> sixteen = train(model::Precision::bf16, 0, micro_batches);
      for (const std::int64_t history : {0, 3}) {
        const std::vector<double> eight = train(model::Precision::fp8, history, micro_batches);
        EXPECT_NE(eight, sixteen);
        EXPECT_LT(eight.back(), 0.9 * eight.front());
        for (std::size_t index = 0; index < eight.size(); ++index) EXPECT_NEAR(eight[index], sixteen[index], 0.03 * sixteen[index]);
        EXPECT_EQ(eight, train(model::Precision::fp8, history, micro_batches));
      }
    }
  }
}

class EveryVariant : public testing::TestWithParam<Variant> {
 protected:
  SessionOptions options(int threads = 2) const {
    model::Model model = small_model(GetParam().family);
    model.dropout = model.attention_dropout = model.embedding_dropout = GetParam().dropout;
    SessionOptions options = options_for(model, GetParam().precision);
    options.micro_batches = GetParam().micro_batches;
    options.training.accumulates = GetParam().micro_batches > 1;
    options.training.segmented = GetParam().family == families::bert();
    options.threads = threads;
    return options;
  }
  StepResult next(Session& session, std::uint32_t number) const { return step(session, GetParam().micro_batches, number); }
};

TEST_P(EveryVariant, LearnsAndIsTheSameEveryTime) {
  Session first(options());
  Session second(options());
  Session one_thread(options(1));
  EXPECT_TRUE(plan::problems(first.plan()).empty());
  double start = 0.0;
  double end = 0.0;
  for (std::uint32_t number = 1; number <= 12; ++number) {
    const StepResult result = next(first, number);
    EXPECT_TRUE(std::isfinite(result.loss));
    ASSERT_EQ(result.loss, next(second, number).loss);
    ASSERT_EQ(result.loss, next(one_thread, number).loss);
    if (number == 1) start = result.loss;
    end = result.loss;
  }
  EXPECT_LT(end, start);
  EXPECT_EQ(state_of(first), state_of(second));
  EXPECT_EQ(state_of(first), state_of(one_thread));
}

// A step must not depend on what an earlier program left in memory that it shares.
TEST_P(EveryVariant, ReadsNothingBeforeItIsWritten) {
  Session clean(options());
  Session poisoned(options());
  const plan::RankClass& rank_class = poisoned.executor().rank_class();
  for (std::uint32_t number = 1; number <= 2; ++number) {
    for (std::uint32_t index = 0; index < rank_class.buffers.size(); ++index) {
      const plan::Buffer& buffer = rank_class.buffers[plan::BufferId{index}];
      if (buffer.persistent()) continue;
      std::memset(poisoned.executor().host_view(plan::BufferId{index}), 0xFF, static_cast<std::size_t>(buffer.bytes.count));
    }
    EXPECT_EQ(next(clean, number).loss, next(poisoned, number).loss);
  }
  EXPECT_EQ(state_of(clean), state_of(poisoned));
}

INSTANTIATE_TEST_SUITE_P(Variants, EveryVariant,
                         testing::Values(Variant{"gpt2_f32", families::gpt2(), model::Precision::f32, 0.0, 1},
                                         Variant{"gpt2_f32_dropout_accumulated", families::gpt2(), model::Precision::f32, 0.2, 3},
                                         Variant{"gpt2_bf16_dropout", families::gpt2(), model::Precision::bf16, 0.1, 1},
                                         Variant{"llama_bf16_accumulated", families::llama(), model::Precision::bf16, 0.0, 2},
                                         Variant{"llama_fp16", families::llama(), model::Precision::fp16, 0.0, 1},
                                         Variant{"bert_f32", families::bert(), model::Precision::f32, 0.1, 2},
                                         Variant{"bert_fp16_accumulated", families::bert(), model::Precision::fp16, 0.0, 2}),
                         [](const auto& each) { return each.param.name; });

TEST(Session, DropoutChangesWithTheStepAndNotWithMicroBatches) {
  model::Model model = small_model();
  model.dropout = 0.3;
  SessionOptions options = options_for(model);
  Session session(options);
  const auto loss_at = [&](Session& at, std::uint32_t number) {
    fill(at, "train", 1, 41, 0);
    return at.step({.learning_rate = 0.0f, .step = number, .valid_targets = 27}).loss;
  };
  const double first = loss_at(session, 1);
  EXPECT_EQ(first, loss_at(session, 1));
  EXPECT_NE(first, loss_at(session, 2));
}

TEST(Session, EvaluationHasNoDropoutAndChangesNothing) {
  model::Model model = small_model();
  SessionOptions options = options_for(model);
  options.evaluate = true;
  Session plain(options);
  model.dropout = 0.5;
  SessionOptions dropping_options = options_for(model);
  dropping_options.evaluate = true;
  Session dropping(dropping_options);
  const std::string before = state_of(plain);
  for (Session* session : {&plain, &dropping}) fill(*session, "evaluate", 1, 41, 5);
  const double sum = plain.evaluate();
  EXPECT_GT(sum, 0.0);
  EXPECT_EQ(sum, dropping.evaluate());
  EXPECT_EQ(before, state_of(plain));
  // What training would have said of the same batch.
  fill(plain, "train", 1, 41, 5);
  EXPECT_NEAR(plain.step({.learning_rate = 0.0f, .step = 1, .valid_targets = 27}).loss, sum / 27.0, 1e-6);
}

TEST(Session, OverflowSkipsTheStepWithoutChangingABit) {
  SessionOptions options = options_for(small_model(), model::Precision::fp16);
  options.training.loss_scaling = {.initial = 1024.0, .window = 3, .hysteresis = 2, .minimum = 1.0};
  Session session(options);
  EXPECT_FALSE(step(session, 1, 1).skipped);
  const std::string before = state_of(session);
  const std::int64_t updates = session.scalars().updates;
  session.scalars().loss_scale = 1e8f;
  // The first overflow is tolerated, the second halves the scale; neither touches weights or moments.
  EXPECT_TRUE(step(session, 1, 2).skipped);
  EXPECT_EQ(session.scalars().loss_scale, 1e8f);
  EXPECT_TRUE(step(session, 1, 3).skipped);
  EXPECT_EQ(session.scalars().loss_scale, 5e7f);
  EXPECT_EQ(before, state_of(session));
  EXPECT_EQ(updates, session.scalars().updates);
  // Good steps bring it back up.
  session.scalars().loss_scale = 256.0f;
  for (std::uint32_t number = 4; number < 7; ++number) EXPECT_FALSE(step(session, 1, number).skipped);
  EXPECT_EQ(session.scalars().loss_scale, 512.0f);
  EXPECT_EQ(updates + 3, session.scalars().updates);
}

TEST(Session, FrozenParametersStayAsTheyAre) {
  SessionOptions options = options_for(small_model(families::llama()));
  options.training.freeze = {"blocks.0.*"};
  Session session(options);
  const auto weights = [&](const std::string& name) {
    const auto view = session.buffers().view<float>(name);
    return std::vector<float>(view.begin(), view.end());
  };
  const std::vector<float> frozen = weights("blocks.0.ffn.up.weight");
  const std::vector<float> trained = weights("blocks.1.ffn.up.weight");
  for (std::uint32_t number = 1; number <= 3; ++number) step(session, 1, number);
  EXPECT_EQ(frozen, weights("blocks.0.ffn.up.weight"));
  EXPECT_NE(trained, weights("blocks.1.ffn.up.weight"));
  EXPECT_FALSE(session.buffers().has("blocks.0.ffn.up.weight.m"));
}

// Of a norm's two gradients one may be wanted and the other not, however many micro-batches add to them.
TEST(Session, WhatIsTrainedBesideFrozenParametersIsTrainedAsEver) {
  for (const std::string frozen : {"*norm*.bias", "*norm*.weight"}) {
    for (const std::int32_t micro_batches : {1, 3}) {
      SessionOptions options = options_for(small_model());
      options.training.optimizer.rule = &ops::update_rule("sgd");
      options.training.optimizer.clip = 0.0;
      options.training.accumulates = micro_batches > 1;
      options.micro_batches = micro_batches;
      Session whole(options);
      options.training.freeze = {frozen};
      Session part(options);
      ASSERT_TRUE(plan::problems(part.plan()).empty());
      const auto weights = [](Session& session, const std::string& name) {
        const auto view = session.buffers().view<float>(name);
        return std::vector<float>(view.begin(), view.end());
      };
      const std::vector<float> bias = weights(part, "blocks.0.attention.norm.bias");
      step(whole, micro_batches, 1);
      step(part, micro_batches, 1);
      const bool biases = frozen.ends_with("bias");
      const std::string other = biases ? "weight" : "bias";
      EXPECT_EQ(weights(part, "blocks.0.attention.norm." + other), weights(whole, "blocks.0.attention.norm." + other));
      EXPECT_EQ(weights(part, "blocks.1.ffn.up.weight"), weights(whole, "blocks.1.ffn.up.weight"));
      EXPECT_EQ(bias == weights(part, "blocks.0.attention.norm.bias"), biases);
      EXPECT_NE(bias, weights(whole, "blocks.0.attention.norm.bias"));
    }
  }
}

// Its row is left as it is, and all others are trained as if it had been.
TEST(Session, LookingUpThePaddingTrainsNothing) {
  for (const model::Family family : {families::llama(), families::bert()}) {
    model::Model model = small_model(family);
    model.tied = false;
    SessionOptions options = options_for(model);
    options.training.optimizer.rule = &ops::update_rule("sgd");
    options.training.optimizer.weight_decay = 0.0;
    options.training.optimizer.clip = 0.0;
    options.training.segmented = family == families::bert();
    Session whole(options);
    model.pad_token = 8;
    options.forward = forward_of(model);
    Session padded(options);
    ASSERT_TRUE(plan::problems(padded.plan()).empty());
    const auto table = [](Session& session) {
      const auto view = session.buffers().view<float>("embed.tokens");
      return std::vector<float>(view.begin(), view.end());
    };
    const std::vector<float> before = table(padded);
    step(whole, 1, 1);
    step(padded, 1, 1);
    std::vector<float> expected = table(whole);
    const auto row = static_cast<std::ptrdiff_t>(model.pad_token * model.width);
    EXPECT_FALSE(std::equal(before.begin() + row, before.begin() + row + model.width, expected.begin() + row))
        << "the padding was not read";
    std::copy_n(before.begin() + row, model.width, expected.begin() + row);
    EXPECT_EQ(table(padded), expected);
  }
}

class EveryOptimizer : public testing::TestWithParam<const char*> {};

TEST_P(EveryOptimizer, Learns) {
  SessionOptions options = options_for(small_model());
  options.training.optimizer.rule = &ops::update_rule(GetParam());
  Session session(options);
  const double first = step(session, 1, 1).loss;
  double last = first;
  for (std::uint32_t number = 2; number <= 20; ++number) {
    fill(session, "train", 1, 41, 1);
    const std::string_view rule = GetParam();
    const float rate = rule == "sgd" || rule == "momentum" ? 0.2f : 1e-2f;
    last = session.step({.learning_rate = rate, .step = number, .valid_targets = 27}).loss;
  }
  EXPECT_LT(last, 0.9 * first);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryOptimizer, testing::Values("sgd", "momentum", "adam", "adamw", "rmsprop", "lion"));

// The factors of the last group that matches, and what has none is as it was.
TEST(ParameterGroups, HaveFactorsOfTheirOwn) {
  SessionOptions options = options_for(small_model());
  options.training.optimizer.weight_decay = 0.1;
  options.training.optimizer.groups = {{.match = {"blocks.0.*"}, .lr = 0.5},
                                       {.match = {"*.bias", "*norm*"}, .lr = 2.0, .weight_decay = 0.25, .decays = true}};
  const graph::Graph graph = graph::training_graph(options.forward, options.training);
  std::int64_t biases = 0;
  std::int64_t halved = 0;
  for (const graph::Node& node : graph.nodes) {
    if (node.phase != graph::Phase::update) continue;
    const auto& update = std::get<ops::Update>(node.op);
    const graph::Value& weight = graph.values[node.inputs[2]];
    const bool second = weight.name.ends_with(".bias") || weight.name.find("norm") != std::string::npos;
    const bool first = weight.name.starts_with("blocks.0.");
    EXPECT_EQ(update.rate, second ? 2.0 : first ? 0.5 : 1.0) << weight.name;
    EXPECT_EQ(update.weight_decay, second ? 0.025 : weight.type.shape.rank() >= 2 ? 0.1 : 0.0) << weight.name;
    biases += second ? 1 : 0;
    halved += first && !second ? 1 : 0;
  }
  EXPECT_GT(biases, 0);
  EXPECT_GT(halved, 0);
  options.training.optimizer.groups = {{.match = {"layers.*"}}};
  EXPECT_NE(tests::refusal([&] { graph::training_graph(options.forward, options.training); }).find("no parameter matches \"layers.*\""),
            std::string::npos);
}

TEST(Session, PlanningIsQuickAndTheSameTwice) {
  const SessionOptions options = options_for(small_model());
  EXPECT_EQ(plan_session(options), plan_session(options));
}

}  // namespace
}  // namespace plimsoll::train

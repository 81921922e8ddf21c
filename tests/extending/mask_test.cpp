// Masks that are declared here, as code outside of src would, in a small model like GPT-2: what they hide is hidden in training, on one
// rank and on several, and parts of what a query sees are put together.
#include <cmath>
#include <mutex>

#include <gtest/gtest.h>

#include "collectives/local/threads.h"
#include "ops/masks/rules.h"
#include "plan/print.h"
#include "train/session/session.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kVocab = 31;
constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kContext = 80;  // more than one tile
constexpr std::int64_t kSamples = 4;
constexpr ops::Heads kHeads{.query = 4, .kv = 4, .dim = 8};

// The keys that are nearer than a number, or no nearer.
template <bool kNear>
struct ByDistance {
  static constexpr std::string_view kName = kNear ? "near_of_a_test" : "far_of_a_test";
  static constexpr std::string_view kAbout = "keys on one side of a distance";
  static constexpr std::array kNumbers{ops::MaskNumber{.name = "distance", .about = "Where the sides meet.", .least = 1}};
  static bool visible(const ops::MaskNumbers& numbers, std::int64_t query, std::int64_t key, std::int64_t) {
    return (query - key < numbers[0]) == kNear;
  }
};
constexpr ops::MaskRule kNear = ops::mask_row_of<ByDistance<true>>();
constexpr ops::MaskRule kFar = ops::mask_row_of<ByDistance<false>>();

// Each head sees the keys that lie a number of positions of its own back.
struct OwnStep {
  static constexpr std::string_view kName = "own_step_of_a_test";
  static constexpr std::string_view kAbout = "every so many keys, by the head";
  static constexpr std::array<ops::MaskNumber, 0> kNumbers{};
  static constexpr bool kByHead = true;
  static bool visible(const ops::MaskNumbers&, std::int64_t query, std::int64_t key, std::int64_t head) {
    return (query - key) % (head + 1) == 0;
  }
};
constexpr ops::MaskRule kOwnStep = ops::mask_row_of<OwnStep>();

using Attend = std::function<graph::ValueId(graph::Builder& build, graph::ValueId y, const std::string& name)>;

// Over packed heads.
Attend packed(const ops::Attention& attention, double dropout = 0.0) {
  return [=](graph::Builder& build, graph::ValueId y, const std::string& name) {
    const ops::Placement deal{.spread = ops::Spread::split, .dim = 0, .units = kHeads.kv};
    const graph::ValueId heads = build.linear(y, name + ".qkv", kHeads.packed_width(), {.bias = true, .init_std = 0.1, .deal = deal});
    return build.attention(heads, attention, dropout, name + ".attention");
  };
}

// Over queries, keys and values of their own, all at once or in two parts.
Attend separate(const std::vector<ops::Attention>& parts) {
  return [=](graph::Builder& build, graph::ValueId y, const std::string& name) {
    std::array<graph::ValueId, 3> tensors;
    for (std::size_t index = 0; index < 3; ++index)
      tensors[index] = build.linear(y, name + "." + std::to_string(index), kWidth, {.bias = true, .init_std = 0.1});
    graph::Builder::Attended seen = build.attend(tensors, parts[0], 0.0, name + ".part");
    for (std::size_t part = 1; part < parts.size(); ++part)
      seen = build.merge_attention(seen, build.attend(tensors, parts[part], 0.0, name + ".other"), name + ".merged");
    return seen.out;
  };
}

graph::WriteForward forward_of(const Attend& attend) {
  return [=](graph::Builder& build) {
    build.block("embed");
    const graph::ValueId tokens = build.parameter("embed.tokens", {kVocab, kWidth}, graph::normal(0.1));
    const graph::ValueId positions = build.parameter("embed.positions", {kContext, kWidth}, graph::normal(0.1));
    graph::ValueId x = build.embed({{build.tokens(), tokens}, {build.positions(), positions}}, "embed");
    for (int layer = 0; layer < 2; ++layer) {
      const std::string name = "blocks." + std::to_string(layer);
      build.block(name);
      const graph::ValueId mixed = attend(build, build.norm(x, name + ".norm", {}), name);
      const ops::Placement by_heads{.spread = ops::Spread::split, .dim = 1, .units = kHeads.kv};
      x = build.residual(x, build.linear(mixed, name + ".out", kWidth, {.bias = true, .init_std = 0.1, .deal = by_heads}), 0.0,
                         name + ".mixed");
      const graph::ValueId up = build.linear(build.norm(x, name + ".ffn", {}), name + ".up", 64, {.bias = true, .init_std = 0.1});
      const graph::ValueId active = build.activation(up, ops::ActivationKind::gelu_tanh, name + ".gelu");
      x = build.residual(x, build.linear(active, name + ".down", kWidth, {.bias = true, .init_std = 0.1}), 0.0, name + ".fed");
    }
    build.block("head");
    build.head(build.norm(x, "head.norm", {}), tokens);
  };
}

// What comes is what came seven places before.
void fill(train::Session& session, std::uint32_t step) {
  const auto input = [&](std::string_view name) { return session.input("train", name, 0); };
  const auto token = [&](std::int64_t sample, std::int64_t place) {
    return static_cast<std::int32_t>((sample * 5 + place % 7 * (3 + sample) + step * 11) % kVocab);
  };
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    for (std::int64_t place = 0; place < kContext; ++place) {
      const auto index = static_cast<std::size_t>(sample * kContext + place);
      input("tokens")[index] = token(sample, place);
      input("targets")[index] = token(sample, place + 1);
      input("positions")[index] = static_cast<std::int32_t>(place);
    }
    if (const auto samples = input("samples"); !samples.empty())
      samples[static_cast<std::size_t>(sample)] = static_cast<std::int32_t>(sample);
  }
}

struct Trained {
  std::vector<double> losses;
  std::string plan;
};

Trained train_steps(const Attend& attend, int steps, collectives::Transport* transport = nullptr, std::int64_t tensor = 1) {
  train::SessionOptions options{.forward = forward_of(attend), .name = "masked", .training = {}};
  options.training.micro_batch = {.samples = kSamples, .sequence = kContext};
  options.strategy.tensor = tensor;
  options.transport = transport;
  options.threads = 1;
  train::Session session(options);
  Trained trained{.losses = {}, .plan = plan::to_string(session.plan())};
  for (int step = 1; step <= steps; ++step) {
    fill(session, static_cast<std::uint32_t>(step));
    const auto number = static_cast<std::uint32_t>(step);
    trained.losses.push_back(session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = kSamples * kContext}).loss);
  }
  return trained;
}

void expect_alike(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < expected.size(); ++step) EXPECT_NEAR(found[step], expected[step], 2e-4 * expected[step]) << step;
}

TEST(OwnMask, IsTheWindowThatItDescribes) {
  const Trained window = train_steps(packed({.heads = kHeads, .window = 9}, 0.1), 5);
  const Trained own = train_steps(packed({.heads = kHeads, .pattern = {&kNear, {9}}}, 0.1), 5);
  EXPECT_EQ(own.losses, window.losses);
  const Trained narrower = train_steps(packed({.heads = kHeads, .pattern = {&kNear, {3}}}, 0.1), 5);
  EXPECT_NE(narrower.losses, window.losses);
}

TEST(OwnMask, RunsInFastKernelsAndTrains) {
  const Trained own = train_steps(packed({.heads = kHeads, .pattern = {&kOwnStep, {}}}), 80);
  EXPECT_NE(own.plan.find("pattern=own_step_of_a_test"), std::string::npos);
  EXPECT_NE(own.plan.find("attention_grad.tiled"), std::string::npos);
  EXPECT_EQ(own.plan.find("attention_grad.reference"), std::string::npos);
  EXPECT_LT(own.losses.back(), 0.5 * own.losses.front());
}

// Heads are counted over all ranks.
TEST(OwnMask, TensorRanksSeeWhatOneRankSees) {
  const Attend attend = packed({.heads = kHeads, .pattern = {&kOwnStep, {}}});
  const Trained one = train_steps(attend, 5);
  std::mutex mutex;
  collectives::local::run_threads(2, [&](collectives::Transport& transport) {
    const Trained rank = train_steps(attend, 5, &transport, 2);
    const std::lock_guard lock(mutex);
    EXPECT_NE(rank.plan.find("heads=2:2:8"), std::string::npos) << "heads are not dealt out";
    expect_alike(rank.losses, one.losses);
  });
}

TEST(OwnMask, PartsAreMergedInTraining) {
  const Trained whole = train_steps(separate({{.heads = kHeads}}), 8);
  const Trained parts = train_steps(separate({{.heads = kHeads, .pattern = {&kNear, {5}}}, {.heads = kHeads, .pattern = {&kFar, {5}}}}), 8);
  EXPECT_NE(parts.plan.find("merge_attention_grad"), std::string::npos);
  expect_alike(parts.losses, whole.losses);
  EXPECT_LT(whole.losses.back(), whole.losses.front());
  const Trained one_part = train_steps(separate({{.heads = kHeads, .pattern = {&kNear, {5}}}}), 8);
  EXPECT_GT(std::abs(one_part.losses.back() - whole.losses.back()), 1e-3);
}

}  // namespace
}  // namespace plimsoll

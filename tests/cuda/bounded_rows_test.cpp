// Micro-batches with room for more rows than they have, on a GPU: garbage behind the last row changes nothing, and the processor gives the
// same.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "executor/cuda/load/cuda_backend.h"
#include "train/session/session.h"
#include "train/stored/weights.h"

namespace plimsoll::train {
namespace {

constexpr std::int64_t kVocab = 61;
constexpr std::int64_t kWidth = 48;
constexpr std::int64_t kBound = 40;

void write_forward(graph::Builder& build) {
  build.block("embed");
  build.bound_rows();
  const graph::ValueId table = build.parameter("embed.tokens", {kVocab, kWidth}, graph::normal(0.5));
  graph::ValueId x = build.embed({{build.tokens(), table}}, "embed");
  build.block("layer");
  graph::ValueId z = build.norm(x, "layer.norm", {});
  z = build.activation(build.linear(z, "layer.up", 3 * kWidth, {.bias = true}), ops::ActivationKind::gelu_tanh, "layer.active");
  x = build.residual(x, build.linear(z, "layer.down", kWidth, {.bias = true}), 0.0, "layer.sum");
  build.block("head");
  build.head(build.norm(x, "head.norm", {.kind = ops::NormKind::rms, .bias = false}), table);
}

// `count` rows, and behind them what no kernel may read.
void fill(Session& session, std::int64_t count, std::int32_t seed, std::int32_t garbage) {
  const auto tokens = session.input("train", "tokens", 0);
  const auto targets = session.input("train", "targets", 0);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const bool live = static_cast<std::int64_t>(row) < count;
    const auto number = static_cast<std::int32_t>(row);
    tokens[row] = live ? (number * 7 + seed * 3) % kVocab : garbage + number;
    targets[row] = live ? (row % 6 == 5 ? -1 : (number * 11 + seed) % kVocab) : -garbage;
  }
  session.input("train", "rows", 0)[0] = static_cast<std::int32_t>(count);
}

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> parameters;
  bool operator==(const Trained&) const = default;
};

Trained trained_on(const executor::Backend* backend, const std::vector<std::int64_t>& counts, std::int32_t garbage) {
  SessionOptions options{.forward = write_forward, .name = "rows", .training = {}, .backend = backend};
  options.training.micro_batch = {.samples = 1, .sequence = kBound};
  options.threads = 1;
  Session session(options);
  Trained trained;
  for (std::size_t step = 0; step < counts.size(); ++step) {
    const auto number = static_cast<std::uint32_t>(step + 1);
    fill(session, counts[step], static_cast<std::int32_t>(number), garbage);
    const StepResult result = session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = 50});
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.gradient_norm);
  }
  for (const ParameterInfo& info : parameters_of(session)) trained.parameters[info.name] = read_parameter(session, info.name);
  return trained;
}

TEST(BoundedRowsOnAGpu, AreTheProcessors) {
  const std::vector<std::int64_t> counts{23, kBound, 1, 9};
  const Trained processor = trained_on(nullptr, counts, 1'000'000);
  const Trained gpu = trained_on(&executor::cuda_backend(), counts, 1'000'000);
  for (std::size_t step = 0; step < counts.size(); ++step) {
    EXPECT_NEAR(gpu.losses[step], processor.losses[step], 1e-4 * processor.losses[step]);
    EXPECT_NEAR(gpu.norms[step], processor.norms[step], 1e-3 * processor.norms[step]);
  }
  for (const auto& [name, values] : processor.parameters) {
    for (std::size_t element = 0; element < values.size(); ++element)
      ASSERT_NEAR(gpu.parameters.at(name)[element], values[element], 2e-3) << name << ", element " << element;
  }
}

TEST(BoundedRowsOnAGpu, WhatIsBehindTheLastChangesNothing) {
  const std::vector<std::int64_t> counts{23, 7};
  EXPECT_EQ(trained_on(&executor::cuda_backend(), counts, 1'000'000), trained_on(&executor::cuda_backend(), counts, 0));
}

TEST(BoundedRowsOnAGpu, AnEmptyBatchHasNoGradient) {
  const Trained found = trained_on(&executor::cuda_backend(), {0, 0}, 1'000'000);
  EXPECT_EQ(found.losses, std::vector<double>(2, 0.0));
  EXPECT_EQ(found.norms, std::vector<double>(2, 0.0));
}

}  // namespace
}  // namespace plimsoll::train

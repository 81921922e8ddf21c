// A model that no preset has, written in C++ and trained in a few lines.
//
// The forward pass is one function over a Builder. From it Plimsoll derives the backward pass and the update, plans
// every byte, and runs steps. Here: a parallel block (attention and feed-forward read the same norm, as in GPT-J) that
// learns to count.
#include <cstdio>

#include "train/session/session.h"

namespace {

using namespace plimsoll;

constexpr std::int64_t kVocab = 32;
constexpr std::int64_t kWidth = 48;
constexpr std::int64_t kContext = 16;
constexpr ops::Heads kHeads{.query = 4, .kv = 2, .dim = 12};

void parallel_model(graph::Builder& build) {
  build.block("embed", graph::BlockKind::opening);
  const graph::ValueId tokens = build.parameter("embed.tokens", {kVocab, kWidth}, graph::normal(0.1));
  const graph::ValueId positions = build.parameter("embed.positions", {kContext, kWidth}, graph::normal(0.1));
  graph::ValueId x = build.embed({{build.tokens(), tokens}, {build.positions(), positions}}, "embed");
  for (int layer = 0; layer < 2; ++layer) {
    const std::string name = "blocks." + std::to_string(layer);
    build.block(name);
    const graph::ValueId y = build.norm(x, name + ".norm", {.kind = ops::NormKind::rms, .eps = 1e-5, .bias = false});
    const graph::ValueId packed = build.linear(y, name + ".qkv", kHeads.packed_width(), {.bias = false, .init_std = 0.1});
    const graph::ValueId mixed = build.attention(packed, {.heads = kHeads, .causal = true}, 0.0, name + ".attention");
    const graph::ValueId attended = build.linear(mixed, name + ".out", kWidth, {.bias = false, .init_std = 0.05});
    const graph::ValueId inner = build.activation(build.linear(y, name + ".up", 4 * kWidth, {.bias = true, .init_std = 0.1}),
                                                  ops::ActivationKind::gelu_tanh, name + ".gelu");
    const graph::ValueId fed = build.linear(inner, name + ".down", kWidth, {.bias = true, .init_std = 0.05});
    x = build.residual(build.residual(x, attended, 0.0, name + ".sum"), fed, 0.0, name + ".result");
  }
  build.block("head", graph::BlockKind::closing);
  x = build.norm(x, "head.norm", {.kind = ops::NormKind::rms, .eps = 1e-5, .bias = false});
  build.head(x, tokens);
}

}  // namespace

int main() {
  model::Training training;
  training.micro_batch = {.samples = 8, .sequence = kContext};
  train::SessionOptions options{.forward = parallel_model, .name = "parallel blocks", .training = training};
  options.threads = 2;
  train::Session session(options);

  double first = 0.0;
  double loss = 0.0;
  for (std::uint32_t step = 1; step <= 60; ++step) {
    const auto tokens = session.input("train", "tokens", 0);
    const auto targets = session.input("train", "targets", 0);
    const auto positions = session.input("train", "positions", 0);
    for (std::size_t index = 0; index < tokens.size(); ++index) {
      const auto place = static_cast<std::int32_t>(index % kContext);
      const auto start = static_cast<std::int32_t>(index / kContext * 5 + step);
      tokens[index] = (start + place) % kVocab;
      targets[index] = (start + place + 1) % kVocab;
      positions[index] = place;
    }
    loss = session.step({.learning_rate = 3e-3f, .step = step, .valid_targets = static_cast<std::int64_t>(tokens.size())}).loss;
    if (step == 1) first = loss;
    if (step % 20 == 0) std::printf("step %2u  loss %.4f\n", step, loss);
  }
  std::printf("from %.3f to %.3f\n", first, loss);
  return loss < 0.2 * first ? 0 : 1;
}

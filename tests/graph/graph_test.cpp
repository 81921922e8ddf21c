// Graphs of whole models: well formed for every family and choice, and refused when they are damaged.
#include "graph/graph.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/models/models.h"
#include "graph/passes/passes.h"
#include "graph/programs/programs.h"
#include "support/small_model.h"

namespace plimsoll::graph {
namespace {

model::Model small(model::Family family) {
  return tests::small_model(family, {.layers = 3, .width = 24, .ffn = 40, .context = 16, .vocab = 31});
}

model::Training training() {
  model::Training training;
  training.micro_batch = {.samples = 2, .sequence = 8};
  return training;
}

template <typename Op>
std::int64_t count(const Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return std::holds_alternative<Op>(node.op); });
}

class EveryFamily : public testing::TestWithParam<model::Family> {};

TEST_P(EveryFamily, GraphsAreWellFormed) {
  for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16, model::Precision::fp16}) {
    for (const double dropout : {0.0, 0.1}) {
      for (const bool segmented : {false, true}) {
        model::Model model = small(GetParam());
        model.dropout = model.attention_dropout = model.embedding_dropout = dropout;
        model.qk_norm = model.qkv_bias = model.out_bias = segmented;
        model::Training options = training();
        options.precision = precision;
        options.segmented = segmented;
        EXPECT_TRUE(problems(training_graph(model, options)).empty());
        EXPECT_TRUE(problems(evaluation_graph(model, options)).empty());
        EXPECT_TRUE(problems(inference_graph(model, options)).empty());
      }
    }
  }
}

// 16 rows, and widths that 16 divides but for the first: only what fits is quantized, each tensor once.
TEST_P(EveryFamily, LinearLayersAreQuantized) {
  for (const std::int64_t history : {0, 4}) {
    const model::Model model = tests::small_model(GetParam(), {.layers = 3, .width = 32, .ffn = 48, .context = 16, .vocab = 31});
    model::Training options = training();
    options.precision = model::Precision::fp8;
    options.amax_history = history;
    const Graph graph = training_graph(model, options);
    EXPECT_TRUE(problems(graph).empty());
    EXPECT_TRUE(problems(evaluation_graph(model, options)).empty());
    const std::int64_t layers = 3 * 4;  // packed heads, projection, and two of the feed-forward
    EXPECT_EQ(count<ops::ScaledLinear>(graph), 3 * layers);
    EXPECT_EQ(count<ops::Quantize>(graph), 3 * layers);
    EXPECT_EQ(count<ops::NoteAmax>(graph), history > 0 ? 3 * layers : 0);
    EXPECT_EQ(count<ops::Activation>(graph) + count<ops::ActivationGrad>(graph), GetParam() == model::Family::bert ? 1 : 0);  // in its head
    for (const Node& node : graph.nodes) {
      const auto* quantize = std::get_if<ops::Quantize>(&node.op);
      if (quantize == nullptr) continue;
      EXPECT_EQ(quantize->dtype, node.phase == Phase::backward ? base::DType::f8e5m2 : base::DType::f8e4m3);
      EXPECT_EQ(quantize->history, history);
    }
  }
}

TEST_P(EveryFamily, WhatDoesNotFitIsNotQuantized) {
  model::Training options = training();
  options.precision = model::Precision::fp8;
  options.micro_batch.sequence = 7;
  EXPECT_THROW(training_graph(small(GetParam()), options), base::Error);
}

TEST_P(EveryFamily, ParametersAreCounted) {
  const model::Model model = small(GetParam());
  const Graph graph = training_graph(model, training());
  std::int64_t elements = 0;
  for (const Parameter& parameter : graph.parameters) elements += graph.values[parameter.weight].type.shape.elements();
  EXPECT_EQ(elements, model::parameter_count(model));
}

TEST_P(EveryFamily, FusionLeavesNoPairBehind) {
  const Graph graph = training_graph(small(GetParam()), training());
  EXPECT_EQ(count<ops::CrossEntropy>(graph), 0);
  EXPECT_EQ(count<ops::HeadLoss>(graph), 1);
  EXPECT_EQ(count<ops::Activation>(graph), 0);
  // One residual sum is fused in every block of the pre-norm families, both in BERT's.
  const std::int64_t fused = std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    const auto* norm = std::get_if<ops::Norm>(&node.op);
    return norm != nullptr && norm->residual;
  });
  EXPECT_EQ(fused, GetParam() == model::Family::bert ? 6 : 3);
}

TEST_P(EveryFamily, FrozenParametersHaveNeitherGradientNorState) {
  model::Training options = training();
  options.freeze = {"blocks.0.*", "embed.*"};
  model::Model model = small(GetParam());
  model.tied = false;
  const Graph graph = training_graph(model, options);
  EXPECT_TRUE(problems(graph).empty());
  for (const Parameter& parameter : graph.parameters) {
    const bool frozen = parameter.name.starts_with("blocks.0.") || parameter.name.starts_with("embed.");
    EXPECT_EQ(parameter.frozen, frozen) << parameter.name;
    EXPECT_EQ(parameter.gradient.valid(), !frozen) << parameter.name;
    EXPECT_EQ(parameter.states.size(), frozen ? 0u : 2u) << parameter.name;
  }
  // Nothing before the first trained parameter is differentiated.
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::backward) {
      EXPECT_NE(graph.blocks[node.block].name, "blocks.0");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::Values(model::Family::gpt2, model::Family::llama, model::Family::bert),
                         [](const auto& each) { return std::string(model::name_of(each.param)); });

TEST(Graph, FreezePatternsThatMatchNothingAreRefused) {
  model::Training options = training();
  options.freeze = {"block.*"};
  EXPECT_THROW(training_graph(small(model::Family::gpt2), options), base::Error);
  options.freeze = {"*"};
  EXPECT_THROW(training_graph(small(model::Family::gpt2), options), base::Error);
}

TEST(Graph, TiedTableAccumulatesItsTwoGradients) {
  const Graph graph = training_graph(small(model::Family::gpt2), training());
  const auto tokens =
      std::find_if(graph.parameters.begin(), graph.parameters.end(), [](const Parameter& p) { return p.name == "embed.tokens"; });
  ASSERT_NE(tokens, graph.parameters.end());
  const Node& last = graph.nodes[graph.values[tokens->gradient].producer];
  EXPECT_TRUE(std::get<ops::EmbedGrad>(last.op).accumulate);
}

TEST(Graph, MastersExistOnlyBelowF32) {
  model::Training options = training();
  for (const Parameter& parameter : training_graph(small(model::Family::gpt2), options).parameters)
    EXPECT_EQ(parameter.master, parameter.weight);
  options.precision = model::Precision::bf16;
  const Graph graph = training_graph(small(model::Family::gpt2), options);
  for (const Parameter& parameter : graph.parameters) {
    const bool matrix = graph.values[parameter.weight].type.shape.rank() >= 2;
    EXPECT_EQ(parameter.master != parameter.weight, matrix) << parameter.name;
    EXPECT_EQ(graph.values[parameter.master].type.dtype, base::DType::f32);
  }
}

TEST(Graph, DamageIsFound) {
  const Graph good = training_graph(small(model::Family::gpt2), training());
  {
    Graph graph = good;
    std::swap(graph.nodes[NodeId{2}], graph.nodes[NodeId{3}]);
    EXPECT_FALSE(problems(graph).empty());
  }
  {
    Graph graph = good;
    graph.values[graph.nodes[NodeId{2}].outputs[0]].type.shape = base::Shape{1};
    EXPECT_FALSE(problems(graph).empty());
  }
  {
    Graph graph = good;
    graph.nodes[NodeId{2}].inputs[0] = ValueId{};
    EXPECT_FALSE(problems(graph).empty());
  }
  {
    Graph graph = good;
    graph.nodes[NodeId{4}].outputs = graph.nodes[NodeId{3}].outputs;
    EXPECT_FALSE(problems(graph).empty());
  }
}

TEST(Graph, RopeScalingsMatchTheirDefinitions) {
  model::Model model = small(model::Family::llama);
  model.head_dim = 64;
  const std::vector<double> plain = rope_frequencies(model);
  model.rope.scaling = model::RopeScaling::linear;
  model.rope.factor = 4.0;
  const std::vector<double> linear = rope_frequencies(model);
  model.rope.scaling = model::RopeScaling::llama3;
  model.rope.original_context = 64;
  const std::vector<double> llama3 = rope_frequencies(model);
  for (std::size_t pair = 0; pair < plain.size(); ++pair) {
    EXPECT_DOUBLE_EQ(linear[pair], plain[pair] / 4.0);
    EXPECT_LE(llama3[pair], plain[pair]);
    EXPECT_GE(llama3[pair], plain[pair] / 4.0);
  }
  EXPECT_DOUBLE_EQ(llama3.front(), plain.front());
  EXPECT_DOUBLE_EQ(llama3.back(), plain.back() / 4.0);
}

}  // namespace
}  // namespace plimsoll::graph

// Derivatives of whole models, and derivatives of derivatives, against differences in double: the graphs that differentiation makes are
// computed by the reference. tests/derivatives runs the same graphs on the engine.
#include "graph/passes/differentiate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "families/families.h"
#include "graph/evaluation.h"
#include "graph/passes/passes.h"
#include "graph/programs/programs.h"
#include "support/refusal.h"
#include "support/small_model.h"

namespace plimsoll::graph {
namespace {

constexpr std::int64_t kVocab = 13;
constexpr double kStep = 1e-4;
constexpr double kTolerance = 1e-6;  // of the largest element of a tensor's derivative, or of the model's where that is small

Graph forward_of(const WriteForward& write, bool fused, const BuildOptions& options = {.micro_batch = {.samples = 2, .sequence = 5}}) {
  Builder build(options);
  write(build);
  Graph graph = std::move(build).finish();
  if (!fused) return graph;
  fuse_linear_activation(graph);
  fuse_residual_norm(graph);
  return graph;
}

std::vector<ValueId> weights_of(const Graph& graph) {
  std::vector<ValueId> weights;
  for (const Parameter& parameter : graph.parameters) weights.push_back(parameter.weight);
  return weights;
}

// A constant of the value's type, to be drawn with the other roots.
ValueId add_constant(Graph& graph, const std::string& name, ValueId like) {
  const Value value = graph.values[like];
  return graph.add_value({.name = name, .type = value.type, .role = Role::constant, .block = value.block});
}

// Every gradient, weighed by a direction of its own.
std::vector<Objective> along_directions(Graph& graph, const std::vector<ValueId>& gradients) {
  std::vector<Objective> objectives;
  for (std::size_t index = 0; index < gradients.size(); ++index) {
    objectives.push_back({gradients[index], add_constant(graph, "direction." + graph.parameters[index].name, gradients[index])});
  }
  return objectives;
}

double largest(const RefTensor& tensor) {
  double found = 0.0;
  for (const double value : tensor.values) found = std::max(found, std::abs(value));
  return found;
}

std::vector<RefTensor> values_of(const Graph& graph, const Roots& roots, const std::vector<ValueId>& ids) {
  const base::IdVector<ValueId, RefValue> values = evaluate(graph, roots);
  std::vector<RefTensor> found;
  for (ValueId id : ids) found.push_back(reference::tensor(values[id]));
  return found;
}

void expect_near(const Graph& graph, const std::vector<RefTensor>& found, const std::vector<RefTensor>& expected) {
  double of_model = 0.0;
  for (const RefTensor& tensor : expected) of_model = std::max(of_model, largest(tensor));
  EXPECT_GT(of_model, 0.0);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t index = 0; index < found.size(); ++index) {
    const std::string& name = graph.parameters[index].name;
    ASSERT_EQ(found[index].elements(), expected[index].elements()) << name;
    double difference = 0.0;
    for (std::int64_t e = 0; e < found[index].elements(); ++e) {
      difference = std::max(difference, std::abs(found[index][e] - expected[index][e]));
    }
    EXPECT_LE(difference, kTolerance * std::max(largest(expected[index]), 1e-2 * of_model)) << name;
  }
}

// The derivative of `ids` as the parameters move along their directions.
std::vector<RefTensor> differences(const Graph& graph, const Roots& roots, const std::vector<ValueId>& ids) {
  const auto at = [&](double by) {
    Roots moved = roots;
    for (const Parameter& parameter : graph.parameters) {
      auto& weight = std::get<RefTensor>(moved.at(parameter.name));
      const RefTensor& direction = reference::tensor(roots.at("direction." + parameter.name));
      for (std::int64_t e = 0; e < weight.elements(); ++e) weight[e] += by * direction[e];
    }
    return values_of(graph, moved, ids);
  };
  std::vector<RefTensor> result = at(kStep);
  const std::vector<RefTensor> back = at(-kStep);
  const std::vector<RefTensor> far = at(2.0 * kStep);
  const std::vector<RefTensor> far_back = at(-2.0 * kStep);
  for (std::size_t index = 0; index < ids.size(); ++index) {
    for (std::int64_t e = 0; e < result[index].elements(); ++e) {
      const double near = result[index][e] - back[index][e];
      result[index][e] = (8.0 * near - (far[index][e] - far_back[index][e])) / (12.0 * kStep);
    }
  }
  return result;
}

// The gradient along the directions is the slope of the loss, and the Hessian's product with them the slope of the gradient.
void check_two_orders(const WriteForward& write, bool fused, const BuildOptions& options = {.micro_batch = {.samples = 2, .sequence = 5}}) {
  Graph graph = forward_of(write, fused, options);
  const ValueId losses = graph.results.at(0);
  const std::vector<ValueId> weights = weights_of(graph);
  const Objective loss{losses};
  const std::vector<ValueId> gradients = differentiate(graph, {&loss, 1}, weights);
  for (ValueId id : gradients) ASSERT_TRUE(id.valid());
  const std::vector<Objective> objectives = along_directions(graph, gradients);
  const std::vector<ValueId> products = differentiate(graph, objectives, weights);
  for (ValueId id : products) ASSERT_TRUE(id.valid());
  verify(graph, "differentiating twice");

  const Roots roots = draw_roots(graph, kVocab);
  const std::vector<RefTensor> gradient = values_of(graph, roots, gradients);
  double slope = 0.0;
  for (std::size_t index = 0; index < gradient.size(); ++index) {
    const RefTensor& direction = reference::tensor(roots.at("direction." + graph.parameters[index].name));
    for (std::int64_t e = 0; e < direction.elements(); ++e) slope += gradient[index][e] * direction[e];
  }
  double expected = 0.0;
  const std::vector<RefTensor> of_losses = differences(graph, roots, {losses});
  for (const double value : of_losses[0].values) expected += value * 2.0 / 13.0;
  EXPECT_NEAR(slope, expected, kTolerance * std::max(1.0, std::abs(expected)));
  expect_near(graph, values_of(graph, roots, products), differences(graph, roots, gradients));
}

model::Model small(model::Family family) {
  return tests::small_model(family, {.layers = 2, .width = 12, .heads = 2, .ffn = 10, .context = 8, .vocab = kVocab});
}

class EveryFamily : public testing::TestWithParam<model::Family> {};

TEST_P(EveryFamily, GradientsAndHessianProductsAreDifferences) {
  for (const bool fused : {false, true}) {
    model::Model model = small(GetParam());
    model.qk_norm = fused;
    check_two_orders([&](Builder& build) { families::build_forward(model, build); }, fused);
  }
}

TEST_P(EveryFamily, DropoutAndSegmentsToo) {
  model::Model model = small(GetParam());
  model.dropout = model.attention_dropout = model.embedding_dropout = 0.2;
  check_two_orders([&](Builder& build) { families::build_forward(model, build); }, true,
                   {.micro_batch = {.samples = 2, .sequence = 5}, .segmented = true});
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::Values(families::gpt2(), families::llama(), families::bert()),
                         [](const auto& each) { return std::string(each.param->name); });

// The stream before a fused sum is read again behind it: what reached it by then belongs to it alone, not to the branch beside it.
void skipping_model(Builder& build) {
  build.block("all");
  const ValueId table = build.parameter("table", {kVocab, 6}, normal(0.3));
  const ValueId x = build.embed({{build.tokens(), table}}, "embed");
  const ValueId branch = build.linear(x, "branch", 6, {.bias = true});
  const ValueId y = build.norm(build.residual(x, branch, 0.0, "sum"), "norm", {});
  build.head(build.residual(y, x, 0.0, "again"), table);
}

TEST(Differentiate, AGradientThatIsHandedToTwoIsNotAddedToInPlace) {
  for (const bool fused : {false, true}) check_two_orders(skipping_model, fused);
}

// Two heads on one stream: the second counts less, and the first may count row by row.
void two_heads(Builder& build) {
  build.block("all");
  const ValueId table = build.parameter("table", {kVocab, 6}, normal(0.3));
  const ValueId first = build.activation(build.linear(build.embed({{build.tokens(), table}}, "embed"), "first", 6, {.bias = true}),
                                         ops::ActivationKind::silu, "silu");
  build.head(first, table);
  build.head(build.linear(first, "second", 6, {}), build.parameter("head", {kVocab, 6}, normal(0.3)));
}

TEST(Differentiate, SeveralLossesAddUpAsTheyAreWeighed) {
  const auto gradients_of = [](const std::function<std::vector<Objective>(Graph&)>& choose) {
    Graph graph = forward_of(two_heads, true);
    const std::vector<Objective> of = choose(graph);
    const std::vector<ValueId> gradients = differentiate(graph, of, weights_of(graph));
    verify(graph, "differentiating");
    const base::IdVector<ValueId, RefValue> values = evaluate(graph, draw_roots(graph, kVocab));
    std::vector<RefTensor> found;
    for (std::size_t index = 0; index < gradients.size(); ++index) {
      const base::Shape& shape = graph.values[graph.parameters[index].weight].type.shape;
      found.push_back(gradients[index].valid() ? reference::tensor(values[gradients[index]]) : RefTensor(shape));
    }
    return found;
  };
  const Graph graph = forward_of(two_heads, true);
  const std::vector<RefTensor> first = gradients_of([](Graph& g) { return std::vector<Objective>{{g.results[0]}}; });
  const std::vector<RefTensor> second = gradients_of([](Graph& g) { return std::vector<Objective>{{g.results[1]}}; });
  std::vector<RefTensor> sum = first;
  for (std::size_t index = 0; index < sum.size(); ++index) {
    for (std::int64_t e = 0; e < sum[index].elements(); ++e) sum[index][e] += 0.3 * second[index][e];
  }
  EXPECT_EQ(largest(first[3]) + largest(first[4]), 0.0) << "what is behind the second head has nothing to do with the first";
  const std::vector<RefTensor> both =
      gradients_of([](Graph& g) { return std::vector<Objective>{{g.results[0]}, {.root = g.results[1], .factor = 0.3}}; });
  expect_near(graph, both, sum);
  // The same by weights that the step scalars would give: 2 / 13 for every row.
  const std::vector<RefTensor> weighed = gradients_of([](Graph& g) {
    const ops::LossWeights whole{.rows = g.values[g.results[0]].type.shape[0]};
    const ops::LossWeights part{.rows = whole.rows, .factor = 0.3};
    const auto weight = [&](const ops::Op& op) { return g.add_node(op, {g.scalars}, BlockId{0}, Phase::forward, "weight")[0]; };
    return std::vector<Objective>{{g.results[0], weight(whole)}, {g.results[1], weight(part)}};
  });
  expect_near(graph, weighed, sum);
}

TEST(Differentiate, WhatIsNotAskedForIsNotDifferentiated) {
  const WriteForward write = [](Builder& build) { families::build_forward(small(families::gpt2()), build); };
  Graph whole = forward_of(write, true);
  const std::vector<ValueId> weights = weights_of(whole);
  const Objective loss{whole.results[0]};
  Graph part = whole;
  const std::vector<ValueId> all = differentiate(whole, {&loss, 1}, weights);
  const std::size_t last = weights.size() - 1;  // of the last norm
  const std::vector<ValueId> few = differentiate(part, {&loss, 1}, {&weights[last], 1});
  EXPECT_LT(part.nodes.size(), whole.nodes.size() / 2 + 10);
  const Roots roots = draw_roots(whole, kVocab);
  EXPECT_EQ(values_of(part, roots, few)[0].values, values_of(whole, roots, {all[last]})[0].values);
  for (std::uint32_t index = 0; index < part.nodes.size(); ++index) {
    const Node& node = part.nodes[NodeId{index}];
    if (node.phase == Phase::backward) {
      EXPECT_EQ(part.blocks[node.block].name, "head") << ops::name_of(node.op);
    }
  }
}

// A value on the way has a derivative like any other, and a value that nothing depends on has none.
TEST(Differentiate, ComputedValuesAreTakenToo) {
  Graph graph = forward_of(two_heads, false);
  const auto named = [&](const std::string& name) {
    for (std::uint32_t index = 0; index < graph.values.size(); ++index) {
      if (graph.values[ValueId{index}].name == name) return ValueId{index};
    }
    return ValueId{};
  };
  const Objective loss{graph.results[0]};
  const std::vector<ValueId> by{named("silu"), named("second")};
  const std::vector<ValueId> found = differentiate(graph, {&loss, 1}, by);
  ASSERT_TRUE(found[0].valid());
  EXPECT_EQ(graph.values[found[0]].type, graph.values[by[0]].type);
  EXPECT_FALSE(found[1].valid());
}

// ---- refusals

std::string refusal(Graph graph, const std::vector<Objective>& of, base::ErrorKind kind = base::ErrorKind::not_legal) {
  return tests::refusal([&] { differentiate(graph, of, weights_of(graph)); }, kind);
}

TEST(Differentiate, RefusalsSayWhatIsMissing) {
  Graph graph = forward_of(two_heads, true);
  const ValueId losses = graph.results[0];
  const ValueId lse = graph.nodes[graph.values[losses].producer].outputs[1];
  const ValueId logits = graph.nodes[graph.values[losses].producer].inputs[0];
  const ValueId weight = add_constant(graph, "weight", losses);
  EXPECT_EQ(refusal(graph, {{logits}}, base::ErrorKind::bad_input),
            "differentiate: logits is no loss and has no weight; expected a weight of type f32[2, 5, 13]");
  EXPECT_EQ(
      refusal(graph, {{logits, weight}}, base::ErrorKind::bad_input),
      "differentiate: logits is f32[2, 5, 13] and has a weight of f32[10] and a factor of 1; expected a weight of its type and no factor");
  EXPECT_EQ(refusal(graph, {{losses}, {losses, weight}}, base::ErrorKind::bad_input),
            "differentiate: losses.0 counts as a loss and in another way; expected one weight for both");
  EXPECT_EQ(
      refusal(graph, {{lse, weight}}),
      "[cross_entropy] a gradient arrived at the log-sum-exp of the logits, which only the backward pass reads; differentiate what the "
      "operator gives besides");
}

TEST(Differentiate, FusedHeadsSayThatTheyDifferentiateOnce) {
  Graph graph = forward_of(two_heads, true);
  fuse_head_loss(graph, {.gradients = true});
  const Objective loss{graph.results[0]};
  const std::vector<ValueId> weights = weights_of(graph);
  EXPECT_NE(refusal(graph, {{graph.results[0], {}, 0.5}}).find("[head_loss] makes its gradients with the losses"), std::string::npos);
  const std::vector<ValueId> gradients = differentiate(graph, {&loss, 1}, weights);
  const ValueId direction = add_constant(graph, "direction", gradients[0]);
  EXPECT_NE(refusal(graph, {{gradients[0], direction}}).find("(fused_head = false)"), std::string::npos);
}

TEST(Differentiate, WhatHasNoThirdDerivativeSaysSo) {
  Graph graph = forward_of(two_heads, true);
  const Objective loss{graph.results[0]};
  const std::vector<ValueId> weights{graph.parameters[0].weight, graph.parameters[1].weight};
  std::vector<ValueId> found = differentiate(graph, {&loss, 1}, weights);
  std::vector<Objective> along;
  for (std::size_t index = 0; index < found.size(); ++index) along.push_back({found[index], add_constant(graph, "once", found[index])});
  found = differentiate(graph, along, weights);
  const ValueId twice = add_constant(graph, "twice", found[0]);
  const std::string told = refusal(graph, {{found[0], twice}});
  EXPECT_NE(told.find("_grad_grad] has no gradient: third derivatives are not written"), std::string::npos) << told;
}

TEST(Differentiate, EightBitProductsAreNotDifferentiated) {
  const model::Model model = tests::small_model(families::gpt2(), {.layers = 1, .width = 32, .ffn = 48, .context = 16, .vocab = 31});
  model::Training training;
  training.micro_batch = {.samples = 2, .sequence = 8};
  training.precision = model::Precision::fp8;
  const Graph graph = training_graph(model, training);
  const auto projection = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                       [](const Node& node) { return std::holds_alternative<ops::ScaledLinear>(node.op); });
  Graph objective = graph;
  const ValueId root = projection->outputs[0];
  const ValueId weight = add_constant(objective, "weight", root);
  EXPECT_EQ(refusal(objective, {{root, weight}}),
            "[scaled_linear] has no gradient: 8-bit products round their operands; differentiate before the graph is quantized");
}

// What came from another rank sends its gradient back there: the gradient of an exchange is one. Other collectives are lowering's.
TEST(Differentiate, AnExchangeGoesBackTheWayItCame) {
  const auto graph_of = [](ops::CollectiveKind kind) {
    Builder build({.micro_batch = {.samples = 2, .sequence = 5}});
    build.block("embed");
    const ValueId x = build.embed({{build.tokens(), build.parameter("table", {kVocab, 8}, normal(0.5))}}, "embed");
    build.all_to_all(x, ops::Axis::data, 2, "away");
    Graph graph = std::move(build).finish();
    auto& op = std::get<ops::Collective>(graph.nodes[NodeId{static_cast<std::uint32_t>(graph.nodes.size() - 1)}].op);
    op.kind = kind;
    return graph;
  };
  Graph graph = graph_of(ops::CollectiveKind::all_to_all);
  const ValueId away = graph.nodes[NodeId{static_cast<std::uint32_t>(graph.nodes.size() - 1)}].outputs[0];
  const std::vector<Objective> of{{away, add_constant(graph, "direction", away)}};
  const std::vector<ValueId> gradients = differentiate(graph, of, weights_of(graph));
  verify(graph, "differentiate");
  const Node* back = nullptr;
  for (const Node& node : graph.nodes) {
    if (ops::is_collective(node.op) && node.outputs[0] != away) back = &node;
  }
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->op, ops::Op(ops::Collective{.kind = ops::CollectiveKind::all_to_all, .members = 2}));
  EXPECT_EQ(graph.values[gradients[0]].type, graph.values[graph.parameters[0].weight].type);
  Graph other = graph_of(ops::CollectiveKind::all_reduce);
  const ValueId sum = other.nodes[NodeId{static_cast<std::uint32_t>(other.nodes.size() - 1)}].outputs[0];
  const std::vector<Objective> of_sum{{sum, add_constant(other, "direction", sum)}};
  const std::string refusal = tests::refusal([&] { differentiate(other, of_sum, weights_of(other)); }, base::ErrorKind::not_legal);
  EXPECT_NE(refusal.find("[all_reduce] has no gradient"), std::string::npos) << refusal;
}

}  // namespace
}  // namespace plimsoll::graph

// The printed form of a graph reads back to the same graph, field by field, and a text that is none is refused with line and reason.
#include "graph/text.h"

#include <gtest/gtest.h>

#include "graph/models/models.h"
#include "graph/programs/programs.h"
#include "ops/step_scalars.h"
#include "support/refusal.h"
#include "support/small_model.h"

namespace plimsoll::graph {
namespace {

void expect_same(const Graph& graph) {
  const std::string text = to_string(graph);
  const Graph again = parse_graph(text, "printed");
  EXPECT_EQ(to_string(again), text);
  ASSERT_TRUE(again == graph) << text;
}

class PrintedFamily : public testing::TestWithParam<model::Family> {};

TEST_P(PrintedFamily, ReadsBackAsItWas) {
  for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16, model::Precision::fp16, model::Precision::fp8}) {
    for (const bool more : {false, true}) {
      model::Model model = tests::small_model(GetParam(), {.layers = 2});
      model.dropout = more ? 0.1 : 0.0;
      model.qk_norm = model.qkv_bias = more;
      model::Training training;
      training.precision = precision;
      training.micro_batch = {.samples = 2, .sequence = 8};
      training.segmented = training.accumulates = training.delayed = more;
      training.optimizer.moments = more ? model::Moments::bf16 : model::Moments::f32;
      if (more) training.freeze = {"blocks.0.*"};
      if (more) training.freeze_as = &ops::form_named("int4");
      expect_same(training_graph(model, training));
      expect_same(evaluation_graph(model, training));
      expect_same(inference_graph(model, training));
      if (GetParam() != model::Family::bert)
        expect_same(continuation_graph([&](Builder& build) { build_forward(model, build); }, training, {.slots = 16}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PrintedFamily, testing::Values(model::Family::gpt2, model::Family::llama, model::Family::bert),
                         [](const auto& each) { return std::string(model::name_of(each.param)); });

// Whatever a field may hold, also what no model has yet.
TEST(GraphText, KeepsEveryField) {
  Graph graph;
  const BlockId first = graph.blocks.add({.name = "a block, (of) its {own}"});
  const BlockId second = graph.blocks.add({.name = "twice", .stage = 3});
  const BlockId third = graph.blocks.add({.name = "twice", .stage = -1});
  const ValueId count = graph.add_value({.name = "count", .type = {base::DType::i32, {1}}, .role = Role::input, .block = second});
  const ValueId x = graph.add_value({.name = "x \"quoted\\\n",
                                     .type = {base::DType::f32, {4}},
                                     .role = Role::input,
                                     .block = first,
                                     .live = {.count = count, .bound = 4, .expected = 0.3}});
  graph.add_value({.name = "_", .type = {}, .role = Role::scalars, .in_memory_of = x});
  graph.add_value({.name = "step_scalars", .type = ops::step_scalars_type(), .role = Role::scalars});
  const ValueId state = graph.add_value(
      {.name = "same",
       .type = {base::DType::bf16, {2, 0, 3}},
       .role = Role::state,
       .block = third,
       .init = {.kind = Init::Kind::normal, .std = 0.1, .frequencies = {1.0, 1e-5}},
       .deal = {.spread = ops::Spread::partial, .dim = 1, .units = 2, .own = 3, .shared = 4},
       .state = {.cut = ops::State::Cut::own, .merge = ops::State::Merge::anew, .written = ops::State::Written::program, .start = 0.7f},
       .part = {.whole = {8, 2}, .dim = 1, .begin = 2, .slice = {8, 1}, .tail = 3, .tail_begin = 4, .first = 5, .tile = 6, .shard = 7},
       .tier = ops::Tier::disk,
       .all_micro_batches = true,
       .begins_gradient = true});
  const ValueId left = graph.add_value({.name = "f32", .type = {base::DType::f32, {4}}, .block = first});
  const ValueId right = graph.add_value({.name = "same", .type = {base::DType::f32, {4}}, .tier = ops::Tier::host});
  graph.add_value({.name = "computed", .type = {base::DType::f32, {4}}, .block = second});  // what nothing is left to make
  graph.append({.op = ops::Cast{}, .inputs = {x}, .outputs = {right}, .block = third, .phase = Phase::join, .turn = Turn::later});
  graph.append({.op = ops::Message{.peer = 1, .shape = {}}, .inputs = {right, ValueId{}}, .outputs = {}, .block = {}, .ahead = true});
  graph.nodes.add({.op = ops::Cast{}, .inputs = {x}, .outputs = {ValueId{}}, .block = second, .phase = Phase::join});
  graph.append({.op = ops::FreshScalars{}, .inputs = {}, .outputs = {left}, .block = {}, .phase = Phase::finish});
  graph.parameters.push_back({.name = "same",
                              .weight = state,
                              .master = {},
                              .states = {left, ValueId{}},
                              .gradient = right,
                              .gradient_leaves = true,
                              .rows_of_table = true,
                              .stored = Stored{.form = &ops::form_named("int4"), .decoded = {base::DType::bf16, {2, 3}}}});
  graph.parameters.push_back({.name = "count", .weight = count, .master = count, .frozen = true});
  graph.results = {left, left};
  graph.scalars = left;
  graph.pending = right;
  expect_same(graph);
  expect_same({});
}

TEST(GraphText, RefusesWhatIsNone) {
  constexpr std::string_view kGood =
      "block one\n"
      "forward one:\n"
      "  input x f32[2, 4]\n"
      "  parameter w f32[8, 4] {init=normal(std=0.02)}\n"
      "  y f32[2, 8] = linear <- x, w\n"
      "trained w\n"
      "results: y\n";
  EXPECT_TRUE(problems(parse_graph(kGood, "good")).empty());
  const auto refused = [&](std::string_view part, std::string_view other, std::string_view reason) {
    std::string text(kGood);
    text.replace(text.find(part), part.size(), other);
    const std::string found = tests::refusal([&] { parse_graph(text, "bad"); });
    EXPECT_NE(found.find(reason), std::string::npos) << "found " << found << "\nexpected " << reason;
  };
  refused("block one", "blok one", "bad:1: found \"blok\"; expected a block, a phase, a role");
  refused("forward one", "forward two", "bad:2: there is no block two");
  refused("forward one:", "forward one", "bad:2: the line ends; expected \":\"");
  refused("forward one:\n", "", "bad:4: a node before the first heading");
  refused("f32[2, 4]", "f33[2, 4]", "bad:3: found \"f33\"; expected a type, as f32[2, 4]");
  refused("f32[2, 4]", "f32[2, -4]", "bad:3: attribute: found \"2:-4\"");
  refused("f32[2, 4]", "f32[1, 1, 1, 1, 1, 1, 1]", "bad:3: attribute: found \"1:1:1:1:1:1:1\"");
  refused("f32[2, 4]", "f32[2, 4", "bad:3: found \"2, 4\"; expected \"]\"");
  refused("init=", "start=", "bad:4: \"start\" says nothing here");
  refused("normal(", "usual(", "bad:4: found \"usual\"; expected one of: none, zeros, ones, normal, rope");
  refused("std=", "mean=", "bad:4: normal has no attribute \"mean\"");
  refused("0.02)}", "0.02)", "bad:4: found \"init=normal(std=0.02)\"; expected a closing brace");
  refused("linear", "lineal", "bad:5: there is no operator \"lineal\"");
  refused("linear", "linear(bias=true", "bad:5: \"linear(bias=true <- x, w\": expected a closing parenthesis");
  refused("<- x, w", "<- x, v", "bad:5: there is no value v");
  refused("<- x, w", "<- x, w w", "bad:5: found \"w\"; expected the end of the line");
  refused("y f32[2, 8]", "y", "bad:5: found \"= linear <- x, w\"; expected a type");
  refused("y f32[2, 8]", "y%7 f32[2, 8]", "bad:7: no value has the number 2, but one has 7");
  refused("y f32[2, 8]", "y%1 f32[2, 8]", "bad:5: a second value has the number 1");
  refused("y f32[2, 8]", "x f32[2, 8]", "bad:5: 2 values are called x; expected a number behind the name, as x%0");
  refused("results: y", "results: y%1", "bad:7: value 1 is not called y");
  refused("results: y", "scalars: x, y", "bad:7: 2 values are scalars; expected one");
  refused("results: y", "result: y", "bad:7: found \"result:\"; expected results, scalars or pending");
  refused("trained w", "trained v", "bad:6: there is no value v");
  refused("trained w", "trained w {decoded=f32[2]}", "bad:6: \"decoded\" without a form before it");
}

}  // namespace
}  // namespace plimsoll::graph

// Plans in which ranks send by codecs, before anything runs: with everything else that a strategy may ask for they pass the verifier, send
// the bytes of the closed forms, and outlines say the same as what is lowered.
#include <gtest/gtest.h>

#include <numeric>

#include "codecs/table.h"
#include "graph/programs/programs.h"
#include "lowering/lower.h"
#include "lowering/outline.h"
#include "ops/step_scalars.h"
#include "plan/traffic.h"
#include "plan/verify.h"
#include "strategy/legality.h"

namespace plimsoll::lowering {
namespace {

using codecs::Use;

ops::KernelChoice stand_in(const ops::KernelQuery& query) { return {fmt::format("{}.stand-in", ops::name_of(query.op)), 128}; }

model::Model model_of() {
  model::Model model = model::family_defaults(model::Family::llama);
  model.layers = 4;
  model.width = 64;
  model.heads = model.kv_heads = 4;
  model.head_dim = 16;
  model.ffn = 128;
  model.context = 64;
  model.vocab = 256;
  return model;
}

struct Case {
  std::string name;
  strategy::Strategy strategy;
  model::Precision precision = model::Precision::f32;
  std::int32_t micro_batches = 1;
  bool host_beside = false;
};

graph::Graph graph_of(const Case& one) {
  model::Training training;
  training.precision = one.precision;
  training.micro_batch = {.samples = 2, .sequence = 16};
  training.accumulates = one.micro_batches > 1;
  training.fused_head = one.strategy.tensor == 1;
  training.masters = one.strategy.offload.optimizer.anything();
  training.optimizer.clip = 1.0;
  return graph::training_graph(model_of(), training);
}

LoweringInputs inputs_of(const Case& one, const graph::Graph& graph) {
  return {.model = "small",
          .programs = {{"train", graph, one.micro_batches}},
          .strategy = one.strategy,
          .choose = stand_in,
          .threads = 1,
          .host_beside = one.host_beside};
}

std::int64_t sent(const plan::Plan& plan, std::int32_t rank = 0) {
  std::int64_t bytes = 0;
  for (const plan::Traffic& entry : plan::traffic_of(plan, plan::class_of(plan, rank).programs[0], rank)) bytes += entry.bytes.count;
  return bytes;
}

plan::Plan plan_of(const Case& one) {
  const graph::Graph graph = graph_of(one);
  plan::Plan plan = lower(inputs_of(one, graph));
  plan::verify(plan, "lowering");
  return plan;
}

Case coded(Case one, std::string_view name) {
  const codecs::Codec& codec = *codecs::find_codec(name);
  one.strategy.communication.gradients = choice_of(codec, Use::gradients);
  one.strategy.communication.activations = choice_of(codec, Use::activations);
  if (one.strategy.zero == 3) one.strategy.communication.weights = choice_of(codec, Use::weights);
  return one;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, std::int64_t data, std::int64_t zero, std::int64_t tensor, std::int64_t pipe, auto&& change) {
    for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16, model::Precision::fp16}) {
      for (const std::int32_t micro_batches : {1, 4}) {
        if (pipe > 1 && micro_batches == 1) continue;
        Case one{.name = name, .strategy = {}, .precision = precision, .micro_batches = micro_batches};
        one.strategy.data = data;
        one.strategy.zero = zero;
        one.strategy.tensor = tensor;
        one.strategy.pipe = pipe;
        change(one);
        if (strategy::reasons_against(one.strategy, micro_batches).empty()) all.push_back(one);
      }
    }
  };
  const auto nothing = [](Case&) {};
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    for (const std::int64_t data : {2, 4}) add("ZeRO", data, zero, 1, 1, nothing);
    add("each reduced", 2, zero, 1, 1, [](Case& one) { one.strategy.keep_grads = one.strategy.zero < 2; });
    add("small buckets", 2, zero, 1, 1, [](Case& one) { one.strategy.bucket = {10'000}; });
    add("recomputed", 2, zero, 1, 1, [](Case& one) { one.strategy.recompute = strategy::Recompute::full; });
    add("in tiles", 2, zero, 1, 1, [](Case& one) { one.strategy.tile = {16'000}; });
    add("optimizer on the host", 2, zero, 1, 1, [](Case& one) { one.strategy.offload.optimizer.host = 1.0; });
    add("optimizer on the host beside", 2, zero, 1, 1, [](Case& one) {
      one.strategy.offload.optimizer.host = 1.0;
      one.host_beside = true;
    });
    add("gradients on the host", 2, zero, 1, 1, [](Case& one) {
      one.strategy.keep_grads = false;
      one.strategy.offload.optimizer.host = one.strategy.offload.gradients.host = 1.0;
    });
    add("stages", 2, zero, 1, 2, nothing);
    add("tensor", 2, zero, 2, 1, nothing);
  }
  add("kept weights", 2, 3, 1, 1, [](Case& one) { one.strategy.keep_params = true; });
  add("by rows", 1, 0, 2, 1, [](Case& one) { one.strategy.sequence_parallel = true; });
  add("by rows in stages", 1, 0, 2, 2, [](Case& one) { one.strategy.sequence_parallel = true; });
  add("scattered", 1, 0, 2, 2, nothing);
  add("whole boundaries", 1, 0, 2, 2, [](Case& one) { one.strategy.scatter_boundaries = false; });
  add("recomputed by rows in stages", 1, 0, 2, 2, [](Case& one) {
    one.strategy.sequence_parallel = true;
    one.strategy.recompute = strategy::Recompute::selective;
  });
  add("activations in parts", 1, 0, 2, 1, [](Case& one) { one.strategy.split_activations = true; });
  add("activations on the host", 1, 0, 2, 2, [](Case& one) { one.strategy.offload.activations.host = 1.0; });
  add("zb-h1", 1, 0, 2, 2, [](Case& one) { one.strategy.schedule = "zb-h1"; });
  return all;
}

TEST(CodecsInPlans, ComposeWithEverythingElse) {
  for (const Case& one : cases()) {
    const std::int64_t before = sent(plan_of(one));
    for (const std::string_view name : {"bf16", "int8"}) {
      const Case with = coded(one, name);
      SCOPED_TRACE(fmt::format("{}, {} micro-batches, precision {}: {}", one.name, one.micro_batches, static_cast<int>(one.precision),
                               strategy::describe(with.strategy)));
      const std::vector<std::string> reasons = strategy::reasons_against(with.strategy, one.micro_batches);
      ASSERT_TRUE(reasons.empty()) << reasons.front();
      const plan::Plan plan = plan_of(with);
      const bool shortens = name == "int8" || one.precision == model::Precision::f32;
      EXPECT_LE(sent(plan), before - (shortens ? 1 : 0));
    }
  }
}

TEST(CodecsInPlans, SendTheBytesOfTheirClosedForms) {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    for (const std::int64_t data : {2, 4}) {
      Case one{.name = "ZeRO", .strategy = {}};
      one.strategy.data = data;
      one.strategy.zero = zero;
      const graph::Graph graph = graph_of(one);
      const std::int64_t before = sent(plan_of(one));
      for (const codecs::Codec* codec : codecs::codecs()) {
        Case with = one;
        with.strategy.communication.gradients = choice_of(*codec, Use::gradients);
        const std::int64_t unit = data * ops::kSumBlock;
        std::int64_t saved = 0;
        for (const graph::Parameter& parameter : graph.parameters) {
          const std::int64_t elements = graph.values[parameter.weight].type.shape.elements();
          const bool split = zero > 0 && elements >= unit;
          const std::int64_t padded = (elements + unit - 1) / unit * unit;
          const codecs::Ask ask{.choice = with.strategy.communication.gradients,
                                .wanted = split ? codecs::Wanted::shard : codecs::Wanted::sum,
                                .type = {base::DType::f32, base::Shape{split ? padded : elements}},
                                .members = data};
          saved += codecs::plain_bytes(ask) - codecs::wire_bytes(ask);
        }
        EXPECT_GT(saved, 0);
        EXPECT_EQ(before - sent(plan_of(with)), saved) << codec->name << ", ZeRO " << zero << ", " << data << " ranks";
      }
    }
  }
}

TEST(CodecsInPlans, AreOutlinedAsTheyAreLowered) {
  for (const Case& one : cases()) {
    if (one.strategy.offload != strategy::Offload{} || one.precision != model::Precision::f32) continue;
    const Case with = coded(one, "int8");
    SCOPED_TRACE(fmt::format("{}: {}", one.name, strategy::describe(with.strategy)));
    const graph::Graph graph = graph_of(with);
    EXPECT_EQ(sent(outline(inputs_of(with, graph))), sent(plan_of(with)));
  }
}

}  // namespace
}  // namespace plimsoll::lowering

// What recompute makes of whole models' graphs and plans: sizes against closed forms, the order of nested runs, what is cheap.
#include "lowering/passes/recompute.h"

#include <gtest/gtest.h>

#include <map>

#include "graph/programs/programs.h"
#include "lowering/fit.h"
#include "lowering/lower.h"
#include "lowering/passes/block_chain.h"
#include "plan/verify.h"
#include "plan/waterline.h"
#include "solvers/rotor.h"
#include "support/small_model.h"

namespace plimsoll::lowering {
namespace {

using strategy::Recompute;

constexpr std::int64_t kSamples = 2;
constexpr std::int64_t kSequence = 40;  // long enough that attention is not cheap

ops::KernelChoice stand_in(const ops::KernelQuery& query) { return {fmt::format("{}.stand-in", ops::name_of(query.op)), 0}; }

// Wide enough that products are not cheap.
model::Model small(model::Family family, std::int64_t layers) {
  return tests::small_model(family, {.layers = layers, .width = 48, .heads = 4, .kv_heads = 4, .ffn = 80, .context = 64, .vocab = 31});
}

graph::Graph graph_of(const model::Model& model, std::int32_t micro_batches = 1, std::vector<std::string> freeze = {}) {
  model::Training training;
  training.freeze = std::move(freeze);
  training.micro_batch = {.samples = kSamples, .sequence = kSequence};
  training.accumulates = micro_batches > 1;
  return graph::training_graph(model, training);
}

plan::Plan plan_of(const model::Model& model, const strategy::Strategy& strategy, std::int32_t micro_batches = 1,
                   base::Bytes device_limit = {}) {
  const graph::Graph graph = graph_of(model, micro_batches);
  plan::Plan plan = lower({.model = "small",
                           .programs = {{"train", graph, micro_batches}},
                           .strategy = strategy,
                           .choose = stand_in,
                           .threads = 1,
                           .device_limit = device_limit});
  const std::vector<std::string> found = plan::problems(plan);
  EXPECT_TRUE(found.empty()) << found.front();
  return plan;
}

strategy::Strategy with(Recompute recompute, std::int64_t every = 1, double memory = 0.0) {
  strategy::Strategy strategy;
  strategy.recompute = recompute;
  strategy.recompute_every = every;
  strategy.recompute_memory = memory;
  return strategy;
}

std::int64_t activations_at(const plan::Plan& plan, std::string_view label) {
  const plan::RankClass& rank_class = plan.classes.at(0);
  for (const plan::Call& call : rank_class.programs.at(0).streams.at(0).calls) {
    if (call.label != label) continue;
    for (const auto& [kind, bytes] : plan::by_kind(rank_class, 0, plan::Tier::device, call.moment)) {
      if (kind == plan::BufferKind::activation) return bytes.count;
    }
  }
  return -1;
}

// Calls of each block in a phase.
std::map<std::string, int> runs(const plan::Plan& plan, const std::string& phase) {
  std::map<std::string, int> counts;
  for (const plan::Call& call : plan.classes.at(0).programs.at(0).streams.at(0).calls) {
    const std::string label = call.label.text();
    if (label.ends_with("." + phase)) ++counts[label.substr(0, label.size() - phase.size() - 1)];
  }
  return counts;
}

TEST(Recompute, FullKeepsBlockInputsAlone) {
  constexpr std::int64_t kLayers = 5;
  const model::Model model = small(families::gpt2(), kLayers);
  const plan::Plan plan = plan_of(model, with(Recompute::full));
  const std::int64_t rows = kSamples * kSequence;
  const std::int64_t wide = rows * model.width * 4;
  const std::int64_t stats = rows * 2 * 4;
  // After the forward pass: the inputs of all blocks and of the head, its norm's statistics and the gradient it gave.
  EXPECT_EQ(activations_at(plan, "head.forward"), (kLayers + 1) * wide + wide + stats);
  // As the last block is made again: the blocks' inputs, the gradient of its output, and what its backward pass reads.
  const std::int64_t saved = 7 * wide + 2 * rows * model.ffn * 4 + 2 * stats + rows * model.heads * 4;
  EXPECT_EQ(activations_at(plan, fmt::format("blocks.{}.recompute", kLayers - 1)), kLayers * wide + wide + saved);
  EXPECT_EQ(runs(plan, "recompute").size(), static_cast<std::size_t>(kLayers));  // what the embedding made is an input
}

TEST(Recompute, EveryBlockIsMadeAgainOnceAndOnlyAsFarAsNeeded) {
  const model::Model model = small(families::gpt2(), 3);
  const graph::Graph kept = graph_of(model);
  const graph::Graph lean = recompute(kept, order_of_recompute(kept, {.kind = Recompute::full}));
  graph::verify(lean, "recompute");
  std::map<std::string_view, int> again;
  for (const graph::Node& node : lean.nodes) {
    if (node.phase == graph::Phase::recompute) ++again[ops::name_of(node.op)];
  }
  // Two norms, attention, and three of the four products: nobody reads the last one's result.
  EXPECT_EQ(again, (std::map<std::string_view, int>{{"norm", 6}, {"attention", 3}, {"linear", 9}}));
}

TEST(Recompute, SelectiveMakesNormsAndActivationsAgain) {
  for (const auto& [family, expected] :
       {std::pair{families::gpt2(), std::map<std::string_view, int>{{"norm", 2}, {"activation", 1}}},
        std::pair{families::llama(), std::map<std::string_view, int>{{"norm", 2}, {"gate", 1}, {"qk_norm", 1}, {"rope", 1}}},
        std::pair{families::bert(), std::map<std::string_view, int>{{"norm", 1}, {"activation", 1}}}}) {
    model::Model model = small(family, 3);
    model.qk_norm = family == families::llama();
    const graph::Graph kept = graph_of(model);
    std::map<std::string_view, int> again;
    const std::vector<BlockPasses> passes = passes_of(kept);
    for (const Rebuilt& rebuilt : passes.at(1).rebuilds) ++again[ops::name_of(rebuilt.op)];
    EXPECT_EQ(again, expected) << family->name;
  }
}

// The chain's count of memory is close to the plan's, and its count of passes is the plan's.
TEST(Recompute, OptimalFollowsTheChain) {
  const model::Model model = small(families::gpt2(), 8);
  const graph::Graph graph = graph_of(model, 2);
  const std::vector<BlockPasses> passes = passes_of(graph);
  const solvers::Chain chain = chain_of(graph, passes, true);
  const MemoryRange range = memory_ranges(graph, {.accumulates = true}).front();
  for (const std::int64_t memory : {range.least, (range.least + range.most) / 2, range.most}) {
    const RecomputeOrder order = order_of_recompute(graph, {.kind = Recompute::optimal, .memory = {memory}, .accumulates = true});
    graph::verify(recompute(graph, order), "recompute");
    const solvers::ChainCost cost = replay(chain, *fastest_order(chain, memory));
    std::map<std::uint32_t, int> forwards;
    for (const RecomputeStep& step : order.steps) {
      if (step.work == RecomputeStep::Work::forward) ++forwards[step.block.index];
    }
    for (std::size_t stage = 0; stage < passes.size(); ++stage) EXPECT_EQ(forwards[passes[stage].block.index], cost.forwards[stage]);
    EXPECT_EQ(cost.forwards.back(), 1);
  }
  const plan::Plan kept = plan_of(model, {}, 2);
  EXPECT_NEAR(static_cast<double>(range.most), static_cast<double>(most_activations(kept).count), 0.15 * static_cast<double>(range.most));
}

// What the chain takes a second run to cost is what one is: nothing that only the next block reads.
TEST(Recompute, TheChainPricesSecondRunsAsTheyAre) {
  for (const model::Family family : {families::gpt2(), families::llama(), families::bert()}) {
    const graph::Graph graph = graph_of(small(family, 3));
    const std::vector<BlockPasses> passes = passes_of(graph);
    const solvers::Chain chain = chain_of(graph, passes, false);
    const RecomputeOrder order = order_of_recompute(graph, {.kind = Recompute::full});
    const graph::Graph after = recompute(graph, order);
    double sum = 0.0;
    for (std::size_t stage = 1; stage + 1 < passes.size(); ++stage) {  // the head runs once, and its input keeps the embedding
      double again = 0.0;
      for (const graph::Node& node : after.nodes) {
        if (node.phase == graph::Phase::recompute && node.block == passes[stage].block) again += price(after, node);
      }
      EXPECT_DOUBLE_EQ(chain.stages[stage].forward_again, again) << family->name << " " << stage;
      EXPECT_TRUE(family == families::bert() || again < chain.stages[stage].forward);  // that one reads its own output back
      sum += again;
    }
    EXPECT_NEAR(order.again, sum, 0.05 * sum);
  }
}

// With a byte more than what "full" needs, and with anything above, "optimal" makes no more again than that, and less and less.
TEST(Recompute, OptimalIsNeverWorseThanFull) {
  const model::Model model = small(families::gpt2(), 12);
  const auto arena = [](const plan::Plan& plan) { return plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)]; };
  const auto again = [](const plan::Plan& plan) {
    double flops = 0.0;
    const plan::Program& program = plan.classes.at(0).programs.at(0);
    for (const plan::Call& call : program.streams.at(0).calls) {
      if (!call.label.ends_with(".recompute")) continue;
      for (const plan::Instruction& instruction : plan.procedures[program.procedure_of(call)].instructions) {
        const auto* compute = std::get_if<plan::Compute>(&instruction);
        if (compute == nullptr) continue;
        const auto types = [](const std::vector<plan::Operand>& operands) {
          std::vector<base::TensorType> found;
          for (const plan::Operand& operand : operands) found.push_back(operand.type);
          return found;
        };
        flops += ops::definition_of(compute->op).work(compute->op, types(compute->inputs), types(compute->outputs)).flops;
      }
    }
    return flops;
  };
  const plan::Plan kept = plan_of(model, {});
  const plan::Plan full = plan_of(model, with(Recompute::full));
  double before = again(full);
  for (const double share : {0.0, 0.1, 0.3, 0.6, 0.9}) {
    const base::Bytes limit{arena(full).count + static_cast<std::int64_t>(share * static_cast<double>((arena(kept) - arena(full)).count))};
    const plan::Plan plan = plan_of(model, with(Recompute::optimal), 1, limit);
    EXPECT_LE(arena(plan), limit);
    EXPECT_LE(again(plan), 1.001 * before) << share;
    before = again(plan);
  }
  EXPECT_LT(before, 0.2 * again(full));
}

TEST(Recompute, NestedRunsAreVerifiedPlans) {
  const model::Model model = small(families::gpt2(), 12);
  const plan::Plan kept = plan_of(model, {});
  for (const double share : {0.9, 0.7, 0.5, 0.35}) {
    const plan::Plan plan = plan_of(model, with(Recompute::optimal, 1, share));
    EXPECT_LE(static_cast<double>(most_activations(plan).count), share * static_cast<double>(most_activations(kept).count));
    EXPECT_FALSE(plan.notes.empty());
  }
  std::int64_t least = 0;
  try {
    plan_of(model, with(Recompute::optimal, 1, 0.01));
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::not_legal);
    least = 1;
  }
  EXPECT_EQ(least, 1);
}

TEST(Recompute, GroupsOfBlocksKeepOneInputEach) {
  const model::Model model = small(families::gpt2(), 7);
  const std::int64_t wide = kSamples * kSequence * model.width * 4;
  const plan::Plan one = plan_of(model, with(Recompute::full));
  const plan::Plan four = plan_of(model, with(Recompute::full, 4));
  // Embedding and seven blocks in groups of four: the inputs of one group and of the head, not of seven blocks and of the head.
  EXPECT_EQ(activations_at(one, "head.forward") - activations_at(four, "head.forward"), 6 * wide);
  EXPECT_EQ(runs(four, "recompute")["embed"], 1);
}

// The first stage of a pipeline has most micro-batches under way, and so makes most again; each rank is within the limit by itself.
TEST(Recompute, EveryPlaceOfAPipelineIsFittedByItself) {
  const model::Model model = small(families::gpt2(), 16);
  strategy::Strategy strategy;
  strategy.pipe = 4;
  const plan::Plan kept = plan_of(model, strategy, 8);
  const auto device = static_cast<std::size_t>(plan::Tier::device);
  strategy.recompute = Recompute::full;
  const plan::Plan full = plan_of(model, strategy, 8);
  strategy.recompute = Recompute::optimal;
  const base::Bytes limit{(plan::fullest_class(kept).arena[device] + plan::fullest_class(full).arena[device]).count / 2};
  const plan::Plan fitted = plan_of(model, strategy, 8, limit);
  const auto run_again = [](const plan::Plan& plan, std::size_t place) {
    std::int64_t instructions = 0;
    const plan::Program& program = plan.classes.at(place).programs.at(0);
    for (const plan::Call& call : program.streams.at(0).calls) {
      if (call.label.ends_with(".recompute")) instructions += std::ssize(plan.procedures[program.procedure_of(call)].instructions);
    }
    return instructions;
  };
  for (std::size_t place = 0; place < 4; ++place) {
    EXPECT_LE(fitted.classes.at(place).arena[device], limit);
    // What fits without is not made again.
    EXPECT_EQ(run_again(fitted, place) > 0, kept.classes.at(place).arena[device] > limit) << place;
    EXPECT_LE(run_again(fitted, place), run_again(fitted, place == 0 ? 0 : place - 1)) << place;
  }
  EXPECT_LT(run_again(fitted, 0), run_again(full, 0));
  EXPECT_EQ(run_again(fitted, 3), 0);
}

// The backward pass does not have the sums of a first block that is not trained, from which its norms would be made again.
TEST(Recompute, NormsOfAFrozenBlockAreNotRebuilt) {
  const graph::Graph graph = graph_of(small(families::llama(), 2), 1, {"embed.*", "blocks.0.*"});
  for (const BlockPasses& block : passes_of(graph)) {
    if (graph.blocks[block.block].name == "blocks.0") {
      EXPECT_TRUE(block.rebuilds.empty());
    }
  }
}

TEST(Recompute, EvaluationIsAsItWas) {
  const model::Model model = small(families::llama(), 3);
  model::Training training;
  training.micro_batch = {.samples = kSamples, .sequence = kSequence};
  const graph::Graph evaluate = graph::evaluation_graph(model, training);
  const auto lowered = [&](Recompute kind) {
    plan::Plan plan =
        lower({.model = "", .programs = {{"evaluate", evaluate, 1}}, .strategy = with(kind), .choose = stand_in, .threads = 1});
    plan.strategy.clear();
    return plan;
  };
  EXPECT_EQ(lowered(Recompute::full), lowered(Recompute::none));
}

}  // namespace
}  // namespace plimsoll::lowering

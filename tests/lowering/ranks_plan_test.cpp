// What a plan of several data ranks promises before anything runs: collectives are issued beside the computation that comes after what
// they move, gathers as far ahead as was set, and the memory of ZeRO 3 is the closed form and what the plan itself lists, to the byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "families/families.h"
#include "graph/programs/programs.h"
#include "lowering/lower.h"
#include "plan/verify.h"
#include "plan/waterline.h"

namespace plimsoll::lowering {
namespace {

constexpr std::int64_t kLayers = 5;

ops::KernelChoice stand_in(const ops::KernelQuery& query) { return {fmt::format("{}.stand-in", ops::name_of(query.op)), 128}; }

model::Model model_of() {
  model::Model model = families::defaults(families::gpt2());
  model.layers = kLayers;
  model.width = 64;
  model.heads = model.kv_heads = 4;
  model.head_dim = 16;
  model.ffn = 256;
  model.context = 64;
  model.vocab = 256;
  return model;
}

strategy::Strategy strategy_of(std::int64_t data, std::int64_t zero) {
  strategy::Strategy strategy;
  strategy.data = data;
  strategy.zero = zero;
  return strategy;
}

plan::Plan plan_of(const strategy::Strategy& strategy, model::Precision precision = model::Precision::f32, std::int32_t micro_batches = 1) {
  model::Training training;
  training.precision = precision;
  training.micro_batch = {.samples = 1, .sequence = 16};
  training.accumulates = micro_batches > 1;
  training.fused_head = strategy.tensor == 1;
  const graph::Graph train = graph::training_graph(model_of(), training);
  plan::Plan plan =
      lower({.model = "small", .programs = {{"train", train, micro_batches}}, .strategy = strategy, .choose = stand_in, .threads = 1});
  plan::verify(plan, "lowering");
  return plan;
}

const std::vector<plan::Call>& stream_of(const plan::Plan& plan, plan::StreamKind kind) {
  for (const plan::Stream& stream : plan.classes[0].programs[0].streams) {
    if (stream.kind == kind) return stream.calls;
  }
  throw std::runtime_error("no such stream");
}

std::int32_t moment_of(const std::vector<plan::Call>& calls, const std::string& label) {
  for (const plan::Call& call : calls) {
    if (call.label == label) return call.moment;
  }
  throw std::runtime_error("no call " + label);
}

std::int32_t last_moment_of(const std::vector<plan::Call>& calls, const std::string& label) {
  std::int32_t last = moment_of(calls, label);
  for (const plan::Call& call : calls) {
    if (call.label == label) last = std::max(last, call.moment);
  }
  return last;
}

std::string block(std::int64_t number) { return fmt::format("blocks.{}", number); }

// A bucket that holds less than a block's gradients is full inside the block: its collective starts as soon as the last of its
// gradients exists, waits for nothing later, and neither the rest of the block's backward pass nor the next block's waits for it.
TEST(RanksPlan, GradientsAreReducedBesideTheNextBlocksBackward) {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    strategy::Strategy strategy = strategy_of(4, zero);
    strategy.bucket = base::Bytes{1000};
    const plan::Plan plan = plan_of(strategy);
    const std::vector<plan::Call>& compute = stream_of(plan, plan::StreamKind::compute);
    const std::vector<plan::Call>& communication = stream_of(plan, plan::StreamKind::communication);
    std::map<std::uint32_t, std::int32_t> signalled;  // token -> moment
    for (const auto* calls : {&compute, &communication}) {
      for (const plan::Call& call : *calls) {
        if (call.signals.valid()) signalled[call.signals.index] = call.moment;
      }
    }
    for (std::int64_t layer = kLayers - 1; layer > 0; --layer) {
      const std::int32_t own = moment_of(compute, block(layer) + ".backward");
      const std::int32_t own_last = last_moment_of(compute, block(layer) + ".backward");
      const std::int32_t next = moment_of(compute, block(layer - 1) + ".backward");
      std::int64_t reductions = 0;
      std::int64_t inside = 0;
      for (const plan::Call& call : communication) {
        const bool reduces = call.label == block(layer) + ".all_reduce" || call.label == block(layer) + ".reduce_scatter";
        if (!reduces) continue;
        ++reductions;
        inside += call.moment < own_last ? 1 : 0;
        EXPECT_GT(call.moment, own) << call.label;
        EXPECT_LT(call.moment, next) << call.label;
        for (plan::TokenId token : call.waits) EXPECT_LE(signalled.at(token.index), own_last) << call.label;
      }
      EXPECT_GE(reductions, 1) << block(layer);
      EXPECT_GE(inside, 1) << block(layer);
      for (const plan::Call& call : compute) {
        if (call.moment < own || call.moment > next) continue;
        for (plan::TokenId token : call.waits) EXPECT_LT(signalled.at(token.index), own) << call.label;
      }
    }
  }
}

// The first bucket is small, so that reducing starts early whatever the others hold. The head's weight is the embedding's: its
// gradient is complete with that block's.
TEST(RanksPlan, LargeBucketsHoldSeveralBlocks) {
  const auto reductions = [](base::Bytes bucket) {
    strategy::Strategy strategy = strategy_of(2, 0);
    strategy.bucket = bucket;
    const plan::Plan plan = plan_of(strategy);
    const std::vector<plan::Call>& calls = stream_of(plan, plan::StreamKind::communication);
    return std::count_if(calls.begin(), calls.end(), [](const plan::Call& call) { return call.label.ends_with(".all_reduce"); });
  };
  EXPECT_GT(reductions(base::Bytes{1000}), kLayers + 1);
  EXPECT_LT(reductions(base::Bytes{500'000}), reductions(base::Bytes{1000}));
  EXPECT_EQ(reductions(base::Bytes{100'000'000}), 2);
}

TEST(RanksPlan, WeightsAreGatheredAsFarAheadAsWasSet) {
  for (const std::int64_t prefetch : {0, 1, 2, 4}) {
    SCOPED_TRACE(prefetch);
    strategy::Strategy strategy = strategy_of(2, 3);
    strategy.prefetch = prefetch;
    const plan::Plan plan = plan_of(strategy);
    const std::vector<plan::Call>& compute = stream_of(plan, plan::StreamKind::compute);
    const std::vector<plan::Call>& communication = stream_of(plan, plan::StreamKind::communication);
    for (std::int64_t layer = prefetch + 1; layer < kLayers; ++layer) {
      const std::int32_t gather = moment_of(communication, block(layer) + ".all_gather");  // the first: of the forward pass
      EXPECT_LT(gather, moment_of(compute, block(layer - prefetch) + ".forward")) << layer;
      EXPECT_GT(gather, moment_of(compute, block(layer - prefetch - 1) + ".forward")) << layer;
    }
  }
}

// Mixed precision: 2 bytes of weight, 2 of gradient and 12 of master and moments for each parameter; vectors stay in f32, 16 bytes too.
// A tensor that is too small to be shared out costs all of its 16.
TEST(RanksPlan, ZeroThreeIsSixteenBytesOverRanksAndTheListedWorkingSet) {
  constexpr std::int64_t kRanks = 4;
  const plan::Plan plan = plan_of(strategy_of(kRanks, 3), model::Precision::bf16);
  const plan::RankClass& rank_class = plan.classes[0];
  std::int64_t shared = 0;  // elements of whole tensors that are shared out, and of those that are not
  std::int64_t whole = 0;
  for (std::uint32_t index = 0; index < rank_class.buffers.size(); ++index) {
    const plan::Buffer& buffer = rank_class.buffers[plan::BufferId{index}];
    if (buffer.kind != plan::BufferKind::parameter) continue;
    const ops::Part part = rank_class.part_of({index});
    (part.shard > 0 ? shared : whole) += part.whole.elements();
    if (part.shard > 0) {
      ASSERT_EQ(part.shard * kRanks, part.whole.elements()) << buffer.name << " is padded";
    }
  }
  ASSERT_GT(shared, 0);
  const std::int64_t closed_form = 16 * shared / kRanks + 16 * whole;

  const auto kinds_at = [&](std::int32_t moment) {
    std::map<plan::BufferKind, std::int64_t> bytes;
    for (const auto& [kind, amount] : plan::by_kind(rank_class, 0, plan::Tier::device, moment)) bytes[kind] = amount.count;
    return bytes;
  };
  const auto model_states = [](std::map<plan::BufferKind, std::int64_t>& bytes) {
    return bytes[plan::BufferKind::parameter] + bytes[plan::BufferKind::master] + bytes[plan::BufferKind::state] +
           bytes[plan::BufferKind::gradient];
  };
  // When the backward pass is over everything is there at once.
  std::int32_t after_backward = 0;
  for (const plan::Call& call : stream_of(plan, plan::StreamKind::communication)) {
    if (call.label.ends_with(".reduce_scatter") || call.label.ends_with(".all_reduce")) after_backward = call.moment;
  }
  auto at_end = kinds_at(after_backward + 1);
  EXPECT_EQ(model_states(at_end), closed_form);

  // At its fullest a rank has the same less the gradients that do not exist yet, and the working set that the plan lists.
  const plan::Waterline line = plan::waterline(rank_class, 0, plan::Tier::device);
  auto at_peak = kinds_at(line.peak_call);
  const std::int64_t to_come = at_end[plan::BufferKind::gradient] - at_peak[plan::BufferKind::gradient];
  std::int64_t working = 0;
  for (const auto& [kind, bytes] : at_peak) working += bytes;
  working -= model_states(at_peak);
  EXPECT_EQ(line.peak.count, closed_form - to_come + working);
  EXPECT_EQ(rank_class.arena[0], line.peak);  // no gaps
}

// What one of them does not do, the others wait for: sharing hides nothing from the verifier.
// Of a plan with a pipeline of two, after `change` of the message that the first sends to the second.
std::vector<std::string> problems_with(const std::function<void(plan::Procedure&, plan::Message&)>& change) {
  strategy::Strategy strategy;
  strategy.pipe = 2;
  plan::Plan plan = plan_of(strategy, model::Precision::f32, 3);
  for (plan::Procedure& procedure : plan.procedures) {
    auto* message = procedure.instructions.empty() ? nullptr : std::get_if<plan::Message>(&procedure.instructions.front());
    if (message == nullptr || message->op.receive || message->op.peer != 1) continue;
    change(procedure, *message);
    return plan::problems(plan);
  }
  return {"the first sends nothing"};
}

TEST(RanksPlan, EveryMessageHasASenderAndAReceiver) {
  EXPECT_TRUE(problems_with([](plan::Procedure&, plan::Message&) {}).empty());
  const std::vector<std::string> late = problems_with([](plan::Procedure&, plan::Message& message) { message.op.tag += 100; });
  ASSERT_EQ(late.size(), 1u);
  EXPECT_NE(late[0].find("waits for ever"), std::string::npos) << late[0];
  const std::vector<std::string> twice =
      problems_with([](plan::Procedure& procedure, const plan::Message& message) { procedure.instructions.emplace_back(message); });
  ASSERT_EQ(twice.size(), 1u);
  EXPECT_NE(twice[0].find("of micro-batch 0 from rank 0 to 1"), std::string::npos) << twice[0];
}

TEST(RanksPlan, TensorRanksShareTheCallsThatAreTheSame) {
  strategy::Strategy strategy = strategy_of(1, 0);
  strategy.pipe = 2;
  strategy.tensor = 4;
  plan::Plan plan = plan_of(strategy, model::Precision::f32, 2);
  ASSERT_EQ(plan.classes.size(), 8u);
  const plan::RankClass& one = plan.classes[1];
  plan::RankClass& other = plan.classes[2];
  EXPECT_TRUE(one.buffers.shares_with(other.buffers));
  EXPECT_TRUE(one.programs[0].streams.shares_with(other.programs[0].streams));
  EXPECT_NE(one.parts, other.parts) << "their slices are their own";

  const auto has_collective = [&](plan::ProcedureId id) {
    const std::vector<plan::Instruction>& instructions = plan.procedures[id].instructions;
    return std::any_of(instructions.begin(), instructions.end(),
                       [](const plan::Instruction& each) { return std::holds_alternative<plan::Collective>(each); });
  };
  std::vector<plan::ProcedureId>& runs = other.programs[0].procedures;
  const auto entry = std::find_if(runs.begin(), runs.end(), has_collective);
  ASSERT_NE(entry, runs.end());
  plan::Procedure silent = plan.procedures[*entry];
  std::erase_if(silent.instructions, [](const plan::Instruction& each) { return std::holds_alternative<plan::Collective>(each); });
  *entry = plan.procedures.add(std::move(silent));
  EXPECT_FALSE(plan::problems(plan).empty());
}

}  // namespace
}  // namespace plimsoll::lowering

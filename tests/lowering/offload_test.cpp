// Plans with two tiers: what is copied, what the verifier sees, and that they can be stored.
#include "lowering/passes/offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "families/families.h"
#include "graph/programs/programs.h"
#include "lowering/lower.h"
#include "ops/step_scalars.h"
#include "plan/file.h"
#include "plan/verify.h"

namespace plimsoll::lowering {
namespace {

ops::KernelChoice stand_in(const ops::KernelQuery& query) { return {fmt::format("{}.stand-in", ops::name_of(query.op)), 0}; }

graph::Graph graph_of(model::Precision precision, std::int64_t layers, double clip = 1.0, bool delayed = false) {
  model::Model model = families::defaults(families::gpt2());
  model.layers = layers;
  model.width = 24;
  model.heads = model.kv_heads = 4;
  model.head_dim = 6;
  model.ffn = 40;
  model.context = 16;
  model.vocab = 31;
  model::Training training;
  training.precision = precision;
  training.micro_batch = {.samples = 2, .sequence = 8};
  training.masters = true;
  training.optimizer.clip = clip;
  training.delayed = delayed;
  return graph::training_graph(model, training);
}

plan::Plan plan_of(model::Precision precision, std::int64_t layers = 3, strategy::TierShare optimizer = {.host = 1.0},
                   bool host_beside = false, double clip = 1.0, bool delayed = false,
                   strategy::CarryUpdate carry = strategy::CarryUpdate::never, base::Bytes host_limit = {}) {
  const graph::Graph graph = graph_of(precision, layers, clip, delayed);
  strategy::Strategy strategy;
  strategy.carry_update = carry;
  strategy.delayed_update = delayed;
  strategy.offload.optimizer = optimizer;
  return lower({.model = "small",
                .programs = {{"train", graph, 1}},
                .strategy = strategy,
                .choose = stand_in,
                .threads = 1,
                .host_beside = host_beside,
                .host_limit = host_limit});
}

std::int64_t host_arena(const plan::Plan& plan) { return plan.classes.at(0).arena[static_cast<std::size_t>(plan::Tier::host)].count; }

// Beside a device that updates a part itself, with and without a verdict to wait for.
TEST(Offload, APartMayStayOnTheDevice) {
  for (const double clip : {0.0, 1.0}) {
    for (const bool beside : {false, true}) {
      const plan::Plan all = plan_of(model::Precision::bf16, 4, {.host = 1.0}, beside, clip);
      const plan::Plan half = plan_of(model::Precision::bf16, 4, {.host = 0.5}, beside, clip);
      const std::vector<std::string> found = plan::problems(half);
      ASSERT_TRUE(found.empty()) << found.front();
      EXPECT_LT(host_arena(half), host_arena(all));
      std::map<plan::StreamKind, int> updates;
      for (const plan::Stream& stream : half.classes.at(0).programs.at(0).streams) {
        for (const plan::Call& call : stream.calls) {
          for (const plan::Instruction& instruction : half.procedures[half.classes.at(0).programs.at(0).procedure_of(call)].instructions) {
            const auto* compute = std::get_if<plan::Compute>(&instruction);
            if (compute != nullptr && is_update(compute->op)) ++updates[stream.kind];
          }
        }
      }
      EXPECT_GT(updates[plan::StreamKind::compute], 0);
      EXPECT_EQ(updates[plan::StreamKind::host_compute] > 0, beside);
    }
  }
}

// Where the host is another processor than the device, it works on a stream of its own, and on nothing but its own memory.
TEST(Offload, TheHostComputesBesideTheDevice) {
  const plan::Plan plan = plan_of(model::Precision::bf16, 3, {.host = 1.0}, true);
  const std::vector<std::string> found = plan::problems(plan);
  ASSERT_TRUE(found.empty()) << found.front();
  const plan::RankClass& all = plan.classes.at(0);
  std::int64_t updates = 0;
  for (const plan::Stream& stream : all.programs.at(0).streams) {
    for (const plan::Call& call : stream.calls) {
      bool on_host = false;
      for (const plan::Instruction& instruction : plan.procedures[plan.classes.at(0).programs.at(0).procedure_of(call)].instructions) {
        const auto* compute = std::get_if<plan::Compute>(&instruction);
        if (compute == nullptr || !std::holds_alternative<ops::Update>(compute->op)) continue;
        on_host = true;
        ++updates;
      }
      EXPECT_EQ(on_host, stream.kind == plan::StreamKind::host_compute);
      if (!on_host) continue;
      for (plan::BufferId id : call.bindings) EXPECT_EQ(all.buffers[id].tier, plan::Tier::host) << all.buffers[id].name;
    }
  }
  EXPECT_EQ(updates, static_cast<std::int64_t>(graph_of(model::Precision::bf16, 3).parameters.size()));
}

const plan::Stream& stream_of(const plan::Plan& plan, plan::StreamKind kind) {
  const std::vector<plan::Stream>& streams = plan.classes.at(0).programs.at(0).streams;
  return *std::find_if(streams.begin(), streams.end(), [&](const plan::Stream& stream) { return stream.kind == kind; });
}

std::int32_t moment_of(const plan::Plan& plan, plan::StreamKind kind, std::string_view label) {
  for (const plan::Call& call : stream_of(plan, kind).calls) {
    if (call.label == label) return call.moment;
  }
  ADD_FAILURE() << "no call " << label;
  return -1;
}

// Without a norm to wait for, a block's update is on its way before the device begins with the next block, and waits for nothing that
// the device computes after it.
TEST(Offload, UpdatesRunUnderTheBackwardPass) {
  const plan::Plan plan = plan_of(model::Precision::bf16, 4, {.host = 1.0}, true, 0.0);
  const std::vector<std::string> found = plan::problems(plan);
  ASSERT_TRUE(found.empty()) << found.front();
  std::map<std::uint32_t, std::int32_t> given;  // token -> moment
  for (const plan::Stream& stream : plan.classes.at(0).programs.at(0).streams) {
    for (const plan::Call& call : stream.calls) {
      if (call.signals.valid()) given[call.signals.index] = call.moment;
    }
  }
  std::vector<std::string> order;
  for (const plan::Call& call : stream_of(plan, plan::StreamKind::host_compute).calls) order.push_back(call.label);
  EXPECT_EQ(order, (std::vector<std::string>{"head.update", "blocks.3.update", "blocks.2.update", "blocks.1.update", "blocks.0.update",
                                             "embed.update"}));
  for (int block = 3; block > 0; --block) {
    const std::int32_t next = moment_of(plan, plan::StreamKind::compute, fmt::format("blocks.{}.backward", block - 1));
    for (const plan::Call& call : stream_of(plan, plan::StreamKind::host_compute).calls) {
      if (call.label != fmt::format("blocks.{}.update", block)) continue;
      EXPECT_LT(call.moment, next);
      for (plan::TokenId token : call.waits) EXPECT_LT(given.at(token.index), next);
    }
  }
}

// Behind the verdict, in the order in which the next forward pass needs the weights.
TEST(Offload, UpdatesThatWaitForTheNormComeInTheOrderOfTheNextForwardPass) {
  const plan::Plan plan = plan_of(model::Precision::bf16, 4, {.host = 1.0}, true, 1.0);
  const std::int32_t verdict = moment_of(plan, plan::StreamKind::compute, "step.verdict");
  std::vector<std::string> order;
  for (const plan::Call& call : stream_of(plan, plan::StreamKind::host_compute).calls) {
    EXPECT_GT(call.moment, verdict);
    order.push_back(call.label);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"embed.update", "blocks.0.update", "blocks.1.update", "blocks.2.update", "blocks.3.update",
                                             "head.update"}));
}

plan::Plan carrying(model::Precision precision, std::int64_t layers, strategy::CarryUpdate carry = strategy::CarryUpdate::automatic,
                    base::Bytes host_limit = {}) {
  return plan_of(precision, layers, {.host = 1.0}, true, 1.0, false, carry, host_limit);
}

// What clipping held back in the step before is made in the order of the forward pass, a few blocks ahead of it: a block waits for its own
// weights, and not for those of blocks behind it.
TEST(Offload, UpdatesThatWaitedRunUnderTheForwardPass) {
  const plan::Plan plan = carrying(model::Precision::bf16, 8);
  const std::vector<std::string> found = plan::problems(plan);
  ASSERT_TRUE(found.empty()) << found.front();
  std::map<std::uint32_t, const plan::Call*> given;  // by token
  for (const plan::Stream& stream : plan.classes.at(0).programs.at(0).streams) {
    for (const plan::Call& call : stream.calls) {
      if (call.signals.valid()) given[call.signals.index] = &call;
    }
  }
  const std::vector<plan::Call>& updates = stream_of(plan, plan::StreamKind::host_compute).calls;
  std::vector<std::string> order;
  for (const plan::Call& call : updates) order.push_back(call.label);
  EXPECT_EQ(order, (std::vector<std::string>{"embed.update", "blocks.0.update", "blocks.1.update", "blocks.2.update", "blocks.3.update",
                                             "blocks.4.update", "blocks.5.update", "blocks.6.update", "blocks.7.update", "head.update"}));
  for (const plan::Call& call : stream_of(plan, plan::StreamKind::compute).calls) {
    if (!call.label.starts_with("blocks.") || !call.label.ends_with(".forward")) continue;
    const int block = call.label.text()[7] - '0';
    const std::int32_t own = moment_of(plan, plan::StreamKind::host_in, fmt::format("blocks.{}.host-in", block));
    bool waits = false;
    for (plan::TokenId token : call.waits) {
      waits = waits || given.at(token.index)->moment == own;
      EXPECT_LE(given.at(token.index)->moment, own) << call.label;
    }
    EXPECT_TRUE(waits) << call.label;
    // Two blocks ahead, and no more, so that what is under way does not grow with the model.
    if (block + 3 >= 8) continue;
    EXPECT_LT(moment_of(plan, plan::StreamKind::host_compute, fmt::format("blocks.{}.update", block + 2)), call.moment);
    EXPECT_GT(moment_of(plan, plan::StreamKind::host_compute, fmt::format("blocks.{}.update", block + 3)), call.moment);
  }
}

// Gradients wait in the host's memory, once and in their own type, and nothing else does.
TEST(Offload, WhatWaitsIsTheGradients) {
  for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16}) {
    const plan::Plan behind = carrying(precision, 4, strategy::CarryUpdate::never);
    const plan::Plan under = carrying(precision, 4);
    std::int64_t waiting = 0;
    for (const plan::Buffer& buffer : under.classes.at(0).buffers) {
      if (buffer.persistent() && buffer.name.ends_with(".pending")) waiting += base::round_up(buffer.bytes, plan::kAlignment).count;
    }
    std::int64_t gradients = 0;
    const graph::Graph graph = graph_of(precision, 4);
    for (const graph::Parameter& parameter : graph.parameters)
      gradients += base::round_up(base::Bytes{graph.values[parameter.gradient].type.bytes()}, plan::kAlignment).count;
    const std::int64_t scalars = base::round_up(base::Bytes{ops::step_scalars_type().bytes()}, plan::kAlignment).count;
    EXPECT_EQ(waiting, gradients + scalars);
    EXPECT_LE(host_arena(under), host_arena(behind) + waiting);
    const auto device = static_cast<std::size_t>(plan::Tier::device);
    EXPECT_LE(under.classes.at(0).arena[device], behind.classes.at(0).arena[device]);
  }
}

TEST(Offload, UpdatesWaitWhereTheHostsMemoryAllowsIt) {
  const auto carries = [](const plan::Plan& plan) { return plan::find_program(plan.classes.at(0), "flush") != nullptr; };
  const plan::Plan under = carrying(model::Precision::bf16, 4);
  EXPECT_TRUE(carries(under));
  EXPECT_TRUE(carries(carrying(model::Precision::bf16, 4, strategy::CarryUpdate::automatic, base::Bytes{host_arena(under)})));
  const plan::Plan behind = carrying(model::Precision::bf16, 4, strategy::CarryUpdate::automatic, base::Bytes{host_arena(under) - 1});
  EXPECT_FALSE(carries(behind));
  EXPECT_NE(behind.notes.back().find("would need"), std::string::npos) << behind.notes.back();
  EXPECT_FALSE(carries(plan_of(model::Precision::bf16, 4, {.host = 1.0}, false, 1.0, false, strategy::CarryUpdate::automatic)));
  EXPECT_FALSE(carries(plan_of(model::Precision::bf16, 4, {.disk = 1.0}, true, 1.0, false, strategy::CarryUpdate::automatic)));
}

// Updates that are a step late run under both passes: some have been issued when the loss is known, the last before the backward pass is
// over, each before its gradient comes. None waits for a norm.
TEST(Offload, UpdatesThatAreAStepLateRunUnderBothPasses) {
  const plan::Plan plan = plan_of(model::Precision::bf16, 12, {.host = 1.0}, true, 1.0, true);
  const std::vector<std::string> found = plan::problems(plan);
  ASSERT_TRUE(found.empty()) << found.front();
  const std::int32_t head = moment_of(plan, plan::StreamKind::compute, "head.forward");
  const std::int32_t last = moment_of(plan, plan::StreamKind::compute, "embed.backward");
  std::int64_t under_forward = 0;  // elements
  std::int64_t under_backward = 0;
  for (const plan::Call& call : stream_of(plan, plan::StreamKind::host_compute).calls) {
    for (const plan::Instruction& instruction : plan.procedures[plan.classes.at(0).programs.at(0).procedure_of(call)].instructions) {
      const auto& compute = std::get<plan::Compute>(instruction);
      if (!std::holds_alternative<ops::Update>(compute.op)) continue;
      EXPECT_LT(call.moment, last);
      (call.moment < head ? under_forward : under_backward) += compute.outputs[0].type.shape.elements();
    }
  }
  const double share = static_cast<double>(under_forward) / static_cast<double>(under_forward + under_backward);
  EXPECT_NEAR(share, 1.0 / 3.0, 0.1);
}

// Gradients on the device are gone with their updates, and in the host's memory there are those of two blocks, however many there are.
TEST(Offload, UpdatesUnderTheBackwardPassUseUpGradients) {
  const auto gradients = [](std::int64_t layers, plan::Tier tier) {
    const plan::Plan plan = plan_of(model::Precision::bf16, layers, {.host = 1.0}, true, 0.0);
    const std::int32_t moments = plan::moments_of(plan.classes.at(0).programs.at(0));
    std::int64_t most = 0;
    for (std::int32_t moment = 0; moment < moments; ++moment) {
      std::int64_t alive = 0;
      for (const plan::Buffer& buffer : plan.classes.at(0).buffers) {
        if (buffer.tier != tier || buffer.persistent() || buffer.first > moment || buffer.last < moment) continue;
        if (tier == plan::Tier::host || buffer.kind == plan::BufferKind::gradient) alive += buffer.bytes.count;
      }
      most = std::max(most, alive);
    }
    return most;
  };
  for (const plan::Tier tier : {plan::Tier::device, plan::Tier::host}) {
    EXPECT_GT(gradients(4, tier), 0);
    EXPECT_LE(gradients(12, tier), gradients(4, tier) + 256);
  }
}

// On their way they pass through two buckets by turns, whatever the size of the model and of its blocks; and the plan says so.
TEST(Offload, GradientsPassThroughBuckets) {
  constexpr std::int64_t kBucket = 2'000;
  const auto in_buckets = [&](std::int64_t layers) {
    const graph::Graph graph = graph_of(model::Precision::bf16, layers, 0.0);
    strategy::Strategy strategy;
    strategy.offload.optimizer = {.host = 1.0};
    strategy.bucket = base::Bytes{kBucket};
    const plan::Plan plan = lower(
        {.model = "small", .programs = {{"train", graph, 1}}, .strategy = strategy, .choose = stand_in, .threads = 1, .host_beside = true});
    const std::vector<std::string> found = plan::problems(plan);
    EXPECT_TRUE(found.empty()) << found.front();
    base::Bytes bytes{0};
    for (const plan::Buffer& buffer : plan.classes.at(0).buffers) {
      if (buffer.tier != plan::Tier::host || buffer.kind != plan::BufferKind::gradient) continue;
      EXPECT_TRUE(buffer.name.starts_with(kBucketName)) << buffer.name;
      bytes += buffer.bytes;
    }
    EXPECT_NE(plan.notes.back().find(base::to_string(bytes)), std::string::npos) << plan.notes.back();
    // None holds more than the largest tensor or a bucket (which counts 4 bytes of each element), but for gaps between tensors.
    std::int64_t largest = kBucket / 4;
    for (const graph::Parameter& parameter : graph.parameters)
      largest = std::max(largest, graph.values[parameter.gradient].type.shape.elements());
    EXPECT_LE(bytes.count, 2 * (2 * largest + 2 * kBucket / 4 + 12 * plan::kAlignment.count));
    return bytes;
  };
  EXPECT_GT(in_buckets(4).count, 0);
  EXPECT_EQ(in_buckets(12), in_buckets(4));
}

TEST(Offload, EveryTensorGoesOutAndComesBackOnce) {
  for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16}) {
    const plan::Plan plan = plan_of(precision);
    const std::vector<std::string> found = plan::problems(plan);
    ASSERT_TRUE(found.empty()) << found.front();
    std::int64_t out = 0;
    std::int64_t in = 0;
    for (const plan::Stream& stream : plan.classes.at(0).programs.at(0).streams) {
      for (const plan::Call& call : stream.calls) {
        for (const plan::Instruction& instruction : plan.procedures[plan.classes.at(0).programs.at(0).procedure_of(call)].instructions) {
          const auto* copy = std::get_if<plan::Copy>(&instruction);
          if (copy == nullptr) continue;
          EXPECT_EQ(stream.kind, copy->op.from == plan::Tier::device ? plan::StreamKind::host_out : plan::StreamKind::host_in);
          (copy->op.from == plan::Tier::device ? out : in) += 1;
        }
      }
    }
    const auto parameters = static_cast<std::int64_t>(graph_of(precision, 3).parameters.size());
    EXPECT_EQ(out, parameters + 1);  // and the step's scalars
    EXPECT_EQ(in, parameters);
  }
}

// Beside masters and moments, what is under way of two blocks, however many there are.
TEST(Offload, WhatIsUnderWayDoesNotGrowWithTheModel) {
  const auto beside = [](std::int64_t layers, bool host_beside) {
    const plan::Plan plan = plan_of(model::Precision::bf16, layers, {.host = 1.0}, host_beside);
    std::int64_t kept = 0;
    for (const plan::Buffer& buffer : plan.classes.at(0).buffers) {
      if (buffer.tier == plan::Tier::host && buffer.persistent()) kept += base::round_up(buffer.bytes, plan::kAlignment).count;
    }
    return host_arena(plan) - kept;
  };
  for (const bool host_beside : {false, true}) EXPECT_LE(beside(12, host_beside), beside(4, host_beside) + 256);
}

// State comes in on one stream and goes out on another, each once, and what is in the host's memory at a time does not grow.
TEST(Offload, StateOnDiskIsReadAheadAndWrittenBehind) {
  const strategy::TierShare on_disk{.disk = 1.0};
  const plan::Plan plan = plan_of(model::Precision::bf16, 3, on_disk);
  const std::vector<std::string> found = plan::problems(plan);
  ASSERT_TRUE(found.empty()) << found.front();
  std::map<plan::StreamKind, std::int64_t> copies;
  for (const plan::Stream& stream : plan.classes.at(0).programs.at(0).streams) {
    for (const plan::Call& call : stream.calls) {
      for (const plan::Instruction& instruction : plan.procedures[plan.classes.at(0).programs.at(0).procedure_of(call)].instructions)
        copies[stream.kind] += std::holds_alternative<plan::Copy>(instruction) ? 1 : 0;
    }
  }
  const auto parameters = static_cast<std::int64_t>(graph_of(model::Precision::bf16, 3).parameters.size());
  EXPECT_EQ(copies[plan::StreamKind::disk_in], 3 * parameters);
  EXPECT_EQ(copies[plan::StreamKind::disk_out], 3 * parameters);
  EXPECT_EQ(copies[plan::StreamKind::host_out], parameters + 1);
  EXPECT_EQ(copies[plan::StreamKind::host_in], parameters);
  EXPECT_LE(host_arena(plan_of(model::Precision::bf16, 12, on_disk)), host_arena(plan_of(model::Precision::bf16, 6, on_disk)) + 256);
}

TEST(Offload, PlansAreStoredAndReadBack) {
  const plan::Plan plan = plan_of(model::Precision::bf16, 3, {.disk = 1.0});
  EXPECT_EQ(plan::plan_from_json(base::parse_json(base::write_json(plan::to_json(plan)), "plan.json")), plan);
}

TEST(Offload, BuffersInTheWrongTierAreFound) {
  const plan::Plan good = plan_of(model::Precision::f32);
  int tried = 0;
  for (std::uint32_t index = 0; index < good.classes.at(0).buffers.size(); ++index) {
    const plan::Buffer& buffer = good.classes.at(0).buffers[plan::BufferId{index}];
    if (buffer.kind != plan::BufferKind::master && buffer.kind != plan::BufferKind::parameter) continue;
    plan::Plan bad = good;
    plan::Buffer& moved = bad.classes.at(0).buffers[plan::BufferId{index}];
    moved.tier = moved.tier == plan::Tier::host ? plan::Tier::device : plan::Tier::host;
    bool named = false;
    for (const std::string& problem : plan::problems(bad)) named = named || problem.find("tiers") != std::string::npos;
    EXPECT_TRUE(named) << buffer.name;
    ++tried;
  }
  EXPECT_GT(tried, 20);
}

}  // namespace
}  // namespace plimsoll::lowering

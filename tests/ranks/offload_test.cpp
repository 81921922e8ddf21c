// Optimizer state in slower tiers: every bit as with everything on the device, for every way ranks share the rest; and the bytes are
// those of masters and moments, with little beside them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "io/temporary_folder.h"
#include "ranks/compare.h"
#include "ranks/disk_faults.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

struct Mix {
  const char* name;
  Family family;
  Precision precision = Precision::f32;
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
  std::int64_t zero = 0;
  std::int64_t micro = 1;
};

Layout layout_of(const Mix& mix) {
  Layout layout{.strategy = {}, .micro = mix.micro};
  layout.strategy.data = mix.data;
  layout.strategy.tensor = mix.tensor;
  layout.strategy.pipe = mix.pipe;
  layout.strategy.zero = mix.zero;
  layout.strategy.bucket = base::Bytes{20'000};
  return layout;
}

class OptimizerElsewhere : public testing::Test {
 protected:
  tests::TemporaryFolder folder_;
};

class OptimizerInLayout : public OptimizerElsewhere, public testing::WithParamInterface<Mix> {};

TEST_P(OptimizerInLayout, IsTheSameBits) {
  const Mix& mix = GetParam();
  Task task{.model = small_model(mix.family), .precision = mix.precision, .samples = 8};
  if (mix.tensor > 1) task.model.kv_heads = 4;
  Layout layout = layout_of(mix);
  const Outcome device = train(task, layout);
  EXPECT_EQ(device.host_arena, 0);
  layout.strategy.offload.optimizer = {.host = 1.0};
  const Outcome host = train(task, layout);
  expect_same_bits(host, device);
  EXPECT_EQ(host.sent, host.predicted);
  EXPECT_LT(host.arena, device.arena);
  EXPECT_EQ(host.disk_arena, 0);
  layout.strategy.offload.optimizer = {.disk = 1.0};
  layout.disk_folder = folder_.path().string();
  const Outcome disk = train(task, layout);
  expect_same_bits(disk, device);
  EXPECT_EQ(disk.arena, host.arena);
  EXPECT_GT(disk.disk_arena, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, OptimizerInLayout,
                         testing::Values(Mix{"gpt2_f32", families::gpt2()},
                                         Mix{"gpt2_bf16_micro", families::gpt2(), Precision::bf16, 1, 1, 1, 0, 2},
                                         Mix{"gpt2_fp16", families::gpt2(), Precision::fp16, 1, 1, 1, 0, 8},
                                         Mix{"llama_bf16", families::llama(), Precision::bf16}, Mix{"bert_f32", families::bert()},
                                         Mix{"gpt2_data2", families::gpt2(), Precision::f32, 2},
                                         Mix{"gpt2_data2_zero1", families::gpt2(), Precision::bf16, 2, 1, 1, 1},
                                         Mix{"llama_data4_zero2", families::llama(), Precision::bf16, 4, 1, 1, 2},
                                         Mix{"gpt2_data2_zero3", families::gpt2(), Precision::f32, 2, 1, 1, 3},
                                         Mix{"gpt2_tensor2", families::gpt2(), Precision::bf16, 1, 2},
                                         Mix{"gpt2_pipe2", families::gpt2(), Precision::bf16, 1, 1, 2},
                                         Mix{"llama_pipe2_data2_zero1", families::llama(), Precision::f32, 2, 1, 2, 1},
                                         Mix{"bert_data2_tensor2_zero3", families::bert(), Precision::f32, 2, 2, 1, 3}),
                         [](const auto& each) { return each.param.name; });

// A tensor larger than what may be under way is updated in parts.
TEST_F(OptimizerElsewhere, LargeTensorsAreUpdatedInParts) {
  for (const std::int64_t zero : {0, 1, 3}) {
    Task task{.model = small_model(families::gpt2()), .precision = Precision::bf16, .samples = 2, .steps = 2};
    task.model.vocab = 40'000;  // 2.56 M elements of the embedding, in five parts of at most 524,288
    Layout layout = layout_of({"", families::gpt2(), Precision::bf16, zero == 0 ? 1 : 2, 1, 1, zero});
    const Outcome device = train(task, layout);
    for (const bool on_disk : {false, true}) {
      layout.strategy.offload.optimizer = on_disk ? strategy::TierShare{.disk = 1.0} : strategy::TierShare{.host = 1.0};
      layout.disk_folder = folder_.path().string();
      const Outcome moved = train(task, layout);
      expect_same_bits(moved, device);
      // Of state, five parts: two being read, one updated, two being written; and gradients and weights beside them.
      if (!on_disk) continue;
      EXPECT_LT(moved.host_arena, (5 * 12 + 3 * 4 + 3 * 2) * std::int64_t{524'288}) << "ZeRO " << zero;
    }
  }
}

// A part of the state on the device, a part in the host's memory, a part on disk: the same bits, and each tier has about its share.
TEST_F(OptimizerElsewhere, MayBeDealtOutOverTiers) {
  for (const double clip : {0.0, 1.0}) {
    for (const Mix& mix :
         {Mix{"", families::gpt2(), Precision::bf16}, Mix{"", families::llama(), Precision::f32, 1, 1, 1, 0, 2},
          Mix{"", families::gpt2(), Precision::bf16, 2, 1, 1, 1}, Mix{"", families::gpt2(), Precision::bf16, 2, 1, 1, 3},
          Mix{"", families::gpt2(), Precision::bf16, 1, 2, 1, 0}, Mix{"", families::llama(), Precision::bf16, 1, 1, 2, 0}}) {
      Task task{.model = small_model(mix.family), .precision = mix.precision, .clip = clip, .samples = 8, .steps = 3};
      if (mix.tensor > 1) task.model.kv_heads = 4;
      Layout layout = layout_of(mix);
      layout.disk_folder = folder_.path().string();
      const Outcome device = train(task, layout);
      layout.strategy.offload.optimizer = {.host = 1.0};
      const Outcome host = train(task, layout);
      expect_same_bits(host, device);
      for (const strategy::TierShare share : {strategy::TierShare{.host = 0.5}, {.host = 0.3, .disk = 0.4}, {.disk = 0.5}}) {
        layout.strategy.offload.optimizer = share;
        SCOPED_TRACE(fmt::format("clip {}, data {}, tensor {}, pipe {}, zero {}: {} and {}", clip, mix.data, mix.tensor, mix.pipe, mix.zero,
                                 share.host, share.disk));
        const Outcome split = train(task, layout);
        expect_same_bits(split, device);
        EXPECT_EQ(split.disk_arena > 0, share.disk > 0.0);
        EXPECT_LT(split.arena, device.arena);
        EXPECT_LT(split.host_arena, host.host_arena);
      }
    }
  }
}

// 12 bytes for each parameter, and what is under way: gradients of two groups and weights of as many.
TEST_F(OptimizerElsewhere, HasNoHiddenCopies) {
  Task task{.model = small_model(families::gpt2()), .precision = Precision::bf16, .samples = 2, .steps = 1};
  task.model.layers = 12;
  Layout layout = layout_of({"", families::gpt2(), Precision::bf16, 1, 1, 1, 0, 2});
  layout.strategy.bucket = base::Bytes{1'000'000};
  layout.strategy.offload.optimizer = {.host = 1.0};
  const Outcome host = train(task, layout);
  std::int64_t parameters = 0;
  for (const auto& [name, values] : host.parameters) parameters += static_cast<std::int64_t>(values.size());
  EXPECT_GE(host.host_arena, 12 * parameters);
  EXPECT_LE(static_cast<double>(host.host_arena), 13.5 * static_cast<double>(parameters));
  layout.strategy.offload.optimizer = {.disk = 1.0};
  layout.disk_folder = folder_.path().string();
  const Outcome disk = train(task, layout);
  EXPECT_GE(disk.disk_arena, 12 * parameters);
  EXPECT_LE(static_cast<double>(disk.disk_arena), 16.0 * static_cast<double>(parameters));  // small tensors take a page each
  EXPECT_LE(static_cast<double>(disk.host_arena), 7.0 * static_cast<double>(parameters));
}

strategy::TierShare share_of(char tier) {
  return tier == 'h' ? strategy::TierShare{.host = 1.0} : tier == 'd' ? strategy::TierShare{.disk = 1.0} : strategy::TierShare{};
}

// Weights, gradients and state each in one of the tiers: -, h or d.
struct Homes {
  const char* name;
  Mix mix;
  const char* tiers;
  std::int64_t samples = 2;
  strategy::Recompute recompute = strategy::Recompute::none;
};

class EverythingElsewhere : public OptimizerElsewhere, public testing::WithParamInterface<Homes> {};

TEST_P(EverythingElsewhere, IsTheSameBits) {
  const Homes& homes = GetParam();
  Task task{.model = small_model(homes.mix.family), .precision = homes.mix.precision, .samples = homes.samples};
  task.model.layers = 6;
  Layout layout = layout_of(homes.mix);
  layout.strategy.prefetch = 1;
  layout.strategy.keep_grads = false;
  layout.strategy.recompute = homes.recompute;
  layout.disk_folder = folder_.path().string();
  const Outcome device = train(task, layout);
  layout.strategy.offload = {
      .optimizer = share_of(homes.tiers[2]), .gradients = share_of(homes.tiers[1]), .params = share_of(homes.tiers[0]), .activations = {}};
  const Outcome moved = train(task, layout);
  expect_same_bits(moved, device);
  EXPECT_EQ(moved.sent, moved.predicted);
  EXPECT_LT(moved.arena, device.arena);
}

INSTANTIATE_TEST_SUITE_P(Tiers, EverythingElsewhere,
                         testing::Values(Homes{"params_host", {"", families::gpt2()}, "h-h"},
                                         Homes{"params_host_bf16", {"", families::llama(), Precision::bf16}, "h-h"},
                                         Homes{"params_host_state_disk", {"", families::gpt2()}, "h-d"},
                                         Homes{"params_host_state_disk_bf16", {"", families::gpt2(), Precision::bf16}, "h-d"},
                                         Homes{"params_disk", {"", families::gpt2()}, "d-d"},
                                         Homes{"params_disk_bf16", {"", families::bert(), Precision::bf16}, "d-d"},
                                         Homes{"gradients_host", {"", families::gpt2(), Precision::f32, 1, 1, 1, 0, 2}, "-hh"},
                                         Homes{"gradients_host_micro", {"", families::gpt2(), Precision::bf16}, "-hh", 4},
                                         Homes{"gradients_disk_micro", {"", families::llama(), Precision::f32}, "-dd", 3},
                                         Homes{"all_host_fp16", {"", families::gpt2(), Precision::fp16}, "hhh"},
                                         Homes{"all_disk", {"", families::gpt2(), Precision::f32, 1, 1, 1, 0, 2}, "ddd"},
                                         Homes{"all_disk_bf16_micro", {"", families::gpt2(), Precision::bf16}, "ddd", 4},
                                         Homes{"all_disk_recompute", {"", families::gpt2()}, "ddd", 2, strategy::Recompute::full},
                                         Homes{"params_host_zero3", {"", families::gpt2(), Precision::bf16, 2, 1, 1, 3}, "h-h", 4},
                                         Homes{"all_host_zero3_micro", {"", families::llama(), Precision::f32, 2, 1, 1, 3}, "hhh", 4},
                                         Homes{"all_disk_zero3_data4", {"", families::gpt2(), Precision::bf16, 4, 1, 1, 3}, "ddd", 8},
                                         Homes{"gradients_host_zero2_micro", {"", families::gpt2(), Precision::f32, 2, 1, 1, 2}, "-hh", 8},
                                         Homes{"gradients_host_zero1", {"", families::gpt2(), Precision::f32, 2, 1, 1, 1}, "-hh", 2},
                                         Homes{"params_disk_tensor2", {"", families::gpt2(), Precision::bf16, 1, 2}, "d-d"},
                                         Homes{"params_host_pipe2", {"", families::gpt2(), Precision::f32, 1, 1, 2}, "h-h", 4},
                                         Homes{"params_disk_pipe2", {"", families::llama(), Precision::bf16, 1, 1, 2}, "d-d", 4}),
                         [](const auto& each) { return each.param.name; });

// Activations out and back.
struct Away {
  const char* name;
  Mix mix;
  strategy::TierShare activations;
  std::int64_t samples = 4;
  strategy::Recompute recompute = strategy::Recompute::none;
};

class ActivationsElsewhere : public OptimizerElsewhere, public testing::WithParamInterface<Away> {};

TEST_P(ActivationsElsewhere, IsTheSameBits) {
  const Away& away = GetParam();
  Task task{.model = small_model(away.mix.family), .precision = away.mix.precision, .samples = away.samples, .steps = 2};
  task.model.layers = away.mix.pipe > 1 ? 8 : 12;
  if (away.mix.tensor > 1) task.model.kv_heads = 4;
  Layout layout = layout_of(away.mix);
  layout.strategy.prefetch = 1;
  layout.strategy.recompute = away.recompute;
  layout.disk_folder = folder_.path().string();
  const Outcome kept = train(task, layout);
  layout.strategy.offload.activations = away.activations;
  const Outcome moved = train(task, layout);
  expect_same_bits(moved, kept);
  EXPECT_LT(moved.activations, kept.activations);
  EXPECT_GT(away.activations.disk > 0.0 ? moved.disk_arena : moved.host_arena, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, ActivationsElsewhere,
    testing::Values(Away{"gpt2", {"", families::gpt2()}, {.host = 1.0}}, Away{"half", {"", families::gpt2()}, {.host = 0.5}},
                    Away{"llama_bf16_disk", {"", families::llama(), Precision::bf16}, {.disk = 1.0}},
                    Away{"bert_disk_micro", {"", families::bert(), Precision::f32, 1, 1, 1, 0, 2}, {.disk = 1.0}},
                    Away{"selective", {"", families::gpt2(), Precision::bf16}, {.host = 1.0}, 4, strategy::Recompute::selective},
                    Away{"full_disk", {"", families::gpt2()}, {.disk = 1.0}, 4, strategy::Recompute::full},
                    Away{"zero3", {"", families::gpt2(), Precision::bf16, 2, 1, 1, 3}, {.host = 1.0}},
                    Away{"tensor2", {"", families::gpt2(), Precision::f32, 1, 2}, {.host = 1.0}},
                    Away{"pipe2", {"", families::gpt2(), Precision::f32, 1, 1, 2}, {.host = 1.0}, 6}),
    [](const auto& each) { return each.param.name; });

// With a limit, the choice between making again and sending away keeps it, and sends where that is faster.
TEST_F(OptimizerElsewhere, RecomputeAndOffloadAreChosenTogether) {
  Task task{.model = small_model(families::gpt2()), .samples = 8, .steps = 2};
  task.model.layers = 12;
  Layout layout = layout_of({"", families::gpt2(), Precision::f32, 1, 1, 1, 0, 8});
  layout.strategy.prefetch = 1;
  const Outcome kept = train(task, layout);
  layout.strategy.recompute = strategy::Recompute::optimal;
  layout.strategy.recompute_memory = 0.6;
  const Outcome again = train(task, layout);
  layout.strategy.offload.activations = {.host = 1.0};
  const Outcome both = train(task, layout);
  expect_same_bits(again, kept);
  expect_same_bits(both, kept);
  EXPECT_LE(static_cast<double>(both.activations), 0.6 * static_cast<double>(kept.activations));
  EXPECT_GT(both.host_arena, 0);
  EXPECT_LT(both.extra_arithmetic, again.extra_arithmetic);
}

// The device holds a few blocks, however many there are; so does the host's memory where everything is on disk.
TEST_F(OptimizerElsewhere, WhatIsUnderWayDoesNotGrowWithTheModel) {
  const auto arenas = [&](std::int64_t layers) {
    Task task{.model = small_model(families::gpt2()), .samples = 1, .steps = 1};
    task.model.layers = layers;
    Layout layout = layout_of({"", families::gpt2()});
    layout.strategy.bucket = base::Bytes{200'000};
    layout.strategy.recompute = strategy::Recompute::full;
    layout.strategy.offload = {.optimizer = {.disk = 1.0}, .gradients = {.disk = 1.0}, .params = {.disk = 1.0}, .activations = {}};
    layout.disk_folder = folder_.path().string();
    const Outcome outcome = train(task, layout);
    return std::pair(outcome.arena, outcome.host_arena);
  };
  const auto [few, few_host] = arenas(12);
  const auto [many, many_host] = arenas(24);
  EXPECT_LE(many - few, 12 * 4 * 64 * kSequence + 4096);  // what is kept between the passes: the inputs of blocks
  EXPECT_LE(many_host, few_host + 4096);
}

TEST_F(OptimizerElsewhere, NoFaultOfTheDiskIsSilent) {
  Task task{.model = small_model(families::gpt2()), .samples = 2, .steps = 2};
  task.model.layers = 1;
  Layout layout = layout_of({"", families::gpt2(), Precision::f32, 1, 1, 1, 0, 2});
  layout.strategy.bucket = base::Bytes{1'000'000};
  layout.strategy.offload.optimizer = {.disk = 1.0};
  layout.disk_folder = folder_.path().string();
  expect_no_silent_fault(task, layout, 41);
}

}  // namespace
}  // namespace plimsoll::ranks

// Every layout computes what one rank computes: to rounding where the sum over samples is cut differently, to the bit where
// only the place of tensors differs. What crosses the wire is what the plan says.
#include <gtest/gtest.h>

#include "ranks/compare.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

Layout layout_of(std::int64_t data, std::int64_t zero, std::int64_t micro = 1) {
  Layout layout{.strategy = {}, .micro = micro};
  layout.strategy.data = data;
  layout.strategy.zero = zero;
  layout.strategy.bucket = base::Bytes{20'000};
  return layout;
}

struct Mix {
  Family family;
  Precision precision;
  std::int64_t data;
  std::int64_t micro;
};

std::string name_of(const testing::TestParamInfo<Mix>& info) {
  static constexpr const char* kFamilies[] = {"gpt2", "llama", "bert"};
  static constexpr const char* kPrecisions[] = {"f32", "bf16", "fp16"};
  return fmt::format("{}_{}_data{}_micro{}", kFamilies[static_cast<int>(info.param.family)],
                     kPrecisions[static_cast<int>(info.param.precision)], info.param.data, info.param.micro);
}

class DataRanks : public testing::TestWithParam<Mix> {};

TEST_P(DataRanks, EveryZeroStageIsOneRank) {
  const Mix& mix = GetParam();
  const Task task{.model = small_model(mix.family), .precision = mix.precision};
  const Outcome alone = train(task, layout_of(1, 0, mix.micro));
  const Outcome whole = train(task, layout_of(mix.data, 0, mix.micro));
  expect_close(whole, alone, tolerance(mix.precision));
  EXPECT_EQ(whole.sent, whole.predicted);
  for (std::int64_t zero : {1, 2, 3}) {
    SCOPED_TRACE(fmt::format("ZeRO {}", zero));
    const Outcome split = train(task, layout_of(mix.data, zero, mix.micro));
    expect_same_bits(split, whole);  // keep_grads: all stages reduce after the last micro-batch
    EXPECT_EQ(split.sent, split.predicted);
    EXPECT_LT(split.arena, whole.arena);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DataRanks,
                         testing::Values(Mix{Family::gpt2, Precision::f32, 2, 1}, Mix{Family::gpt2, Precision::f32, 2, 4},
                                         Mix{Family::gpt2, Precision::f32, 8, 1}, Mix{Family::gpt2, Precision::bf16, 4, 2},
                                         Mix{Family::gpt2, Precision::bf16, 4, 1}, Mix{Family::gpt2, Precision::fp16, 2, 2},
                                         Mix{Family::llama, Precision::f32, 4, 1}, Mix{Family::llama, Precision::bf16, 2, 4},
                                         Mix{Family::bert, Precision::f32, 4, 1}, Mix{Family::bert, Precision::fp16, 2, 1}),
                         name_of);

TEST(DataRanks, ReducingEveryMicroBatchIsTheSameToRounding) {
  const Task task{.model = small_model(Family::bert)};
  const Outcome alone = train(task, layout_of(1, 0));
  for (std::int64_t zero : {2, 3}) {
    Layout layout = layout_of(2, zero);
    layout.strategy.keep_grads = false;
    const Outcome split = train(task, layout);
    expect_close(split, alone, tolerance(task.precision));
    EXPECT_EQ(split.sent, split.predicted);
  }
}

TEST(DataRanks, PrefetchAndKeptWeightsChangeNoBit) {
  const Task task{.model = small_model(Family::gpt2)};
  const Outcome usual = train(task, layout_of(4, 3));
  for (std::int64_t prefetch : {0, 1, 7}) {
    for (bool keep : {false, true}) {
      Layout layout = layout_of(4, 3);
      layout.strategy.prefetch = prefetch;
      layout.strategy.keep_params = keep;
      const Outcome found = train(task, layout);
      expect_same_bits(found, usual);
      EXPECT_EQ(found.sent, found.predicted);
    }
  }
}

TEST(DataRanks, OneMainDeviceIsTheSameBits) {
  const Task task{.model = small_model(Family::gpt2)};
  const Outcome ring = train(task, layout_of(4, 0));
  Layout layout = layout_of(4, 0);
  layout.strategy.reduce = strategy::Reduce::main;
  const Outcome main = train(task, layout);
  expect_same_bits(main, ring);
  EXPECT_EQ(main.sent, main.predicted);
}

class TensorRanks : public testing::TestWithParam<Mix> {};

// `micro` is the tensor degree here.
TEST_P(TensorRanks, SplitWeightsAreOneRank) {
  const Mix& mix = GetParam();
  Task task{.model = small_model(mix.family), .precision = mix.precision};
  task.model.kv_heads = 4;
  task.model.qk_norm = mix.family == Family::llama;
  const Outcome alone = train(task, layout_of(1, 0, 2));
  for (std::int64_t zero : {0, 1, 2, 3}) {
    if (mix.data == 1 && zero > 0) continue;
    SCOPED_TRACE(fmt::format("ZeRO {}", zero));
    Layout layout = layout_of(mix.data, zero, 2);
    layout.strategy.tensor = mix.micro;
    const Outcome split = train(task, layout);
    expect_close(split, alone, tolerance(mix.precision));
    EXPECT_EQ(split.sent, split.predicted);
    EXPECT_LT(split.arena, alone.arena);
    for (const auto& [name, values] : alone.parameters) EXPECT_EQ(split.parameters.at(name).size(), values.size()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TensorRanks,
                         testing::Values(Mix{Family::gpt2, Precision::f32, 1, 2}, Mix{Family::gpt2, Precision::f32, 1, 3},
                                         Mix{Family::gpt2, Precision::f32, 2, 4}, Mix{Family::gpt2, Precision::bf16, 2, 2},
                                         Mix{Family::gpt2, Precision::fp16, 1, 4}, Mix{Family::llama, Precision::f32, 1, 2},
                                         Mix{Family::llama, Precision::f32, 4, 2}, Mix{Family::llama, Precision::bf16, 2, 3},
                                         Mix{Family::bert, Precision::f32, 2, 2}, Mix{Family::bert, Precision::bf16, 1, 4}),
                         name_of);

}  // namespace
}  // namespace plimsoll::ranks

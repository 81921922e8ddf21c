// Weights in tiles: what the whole weights give, to rounding, for every way ranks share the rest; the same bits wherever the tiles live;
// and a device smaller than one weight is enough.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "io/temporary_folder.h"
#include "ranks/compare.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;
using strategy::Recompute;

struct Mix {
  const char* name;
  Family family;
  Precision precision = Precision::f32;
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
  std::int64_t zero = 0;
  std::int64_t micro = 1;
  std::int64_t tile = 8'192;
  Recompute recompute = Recompute::none;
  const char* schedule = "1f1b";
  std::int64_t chunks = 1;
};

Layout layout_of(const Mix& mix) {
  Layout layout{.strategy = {}, .micro = mix.micro};
  layout.strategy.data = mix.data;
  layout.strategy.tensor = mix.tensor;
  layout.strategy.pipe = mix.pipe;
  layout.strategy.zero = mix.zero;
  layout.strategy.recompute = mix.recompute;
  layout.strategy.schedule = mix.schedule;
  layout.strategy.chunks = mix.chunks;
  layout.strategy.bucket = base::Bytes{20'000};
  return layout;
}

Task task_of(const Mix& mix) {
  Task task{.model = small_model(mix.family), .precision = mix.precision, .samples = 8};
  if (mix.tensor > 1) task.model.kv_heads = 4;
  if (mix.chunks > 1) task.model.layers = 4;
  return task;
}

void expect_close_parameters(const Outcome& found, const Outcome& expected, double limit) {
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  for (const auto& [name, values] : expected.parameters) {
    ASSERT_EQ(found.parameters.at(name).size(), values.size()) << name;
    double most = 0.0;
    for (std::size_t index = 0; index < values.size(); ++index)
      most = std::max(most, std::abs(static_cast<double>(found.parameters.at(name)[index] - values[index])));
    EXPECT_LT(most, limit) << name;
  }
}

class Tiled : public testing::Test {
 protected:
  tests::TemporaryFolder folder_;
};

class TiledInLayout : public Tiled, public testing::WithParamInterface<Mix> {};

TEST_P(TiledInLayout, IsTheSameToRoundingAndTheSameBitsInEveryTier) {
  const Mix& mix = GetParam();
  const Task task = task_of(mix);
  Layout layout = layout_of(mix);
  const Outcome whole = train(task, layout);
  layout.strategy.tile = base::Bytes{mix.tile};
  const Outcome tiled = train(task, layout);
  expect_close(tiled, whole, tolerance(mix.precision));
  // A step of Adam is as large for a small gradient as for a large one, so what is rounded otherwise may go another way.
  expect_close_parameters(tiled, whole, mix.precision == Precision::f32 ? 5e-3 : 7e-2);
  EXPECT_EQ(tiled.sent, tiled.predicted);

  layout.disk_folder = folder_.path().string();
  for (const bool on_disk : {false, true}) {
    const strategy::TierShare share = on_disk ? strategy::TierShare{.disk = 1.0} : strategy::TierShare{.host = 1.0};
    layout.strategy.offload = {.optimizer = share, .gradients = {}, .params = {}, .activations = {}};
    const bool shards_weights = mix.data == 1 || mix.zero == 0 || mix.zero == 3;
    const bool one_at_a_time = mix.data == 1 || task.samples == mix.data * mix.micro;
    if (shards_weights) layout.strategy.offload.params = share;
    if (one_at_a_time) layout.strategy.offload.gradients = share;
    const Outcome away = train(task, layout);
    expect_same_bits(away, tiled);
    EXPECT_LT(away.arena, tiled.arena);
    EXPECT_EQ(away.disk_arena > 0, on_disk);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, TiledInLayout,
    testing::Values(Mix{"gpt2_f32", families::gpt2(), Precision::f32, 1, 1, 1, 0, 4},
                    Mix{"gpt2_bf16_micro", families::gpt2(), Precision::bf16, 1, 1, 1, 0, 2},
                    Mix{"gpt2_fp16", families::gpt2(), Precision::fp16, 1, 1, 1, 0, 8},
                    Mix{"llama_bf16", families::llama(), Precision::bf16}, Mix{"bert_f32", families::bert(), Precision::f32, 1, 1, 1, 0, 4},
                    Mix{"bert_one_micro_batch", families::bert(), Precision::f32, 1, 1, 1, 0, 8},
                    Mix{"gpt2_rows_alone", families::gpt2(), Precision::f32, 1, 1, 1, 0, 8, 2'000},
                    Mix{"gpt2_full_recompute", families::gpt2(), Precision::f32, 1, 1, 1, 0, 2, 5'000, Recompute::full},
                    Mix{"llama_selective_recompute", families::llama(), Precision::f32, 1, 1, 1, 0, 2, 5'000, Recompute::selective},
                    Mix{"gpt2_optimal_recompute", families::gpt2(), Precision::f32, 1, 1, 1, 0, 2, 5'000, Recompute::optimal},
                    Mix{"gpt2_data2", families::gpt2(), Precision::f32, 2, 1, 1, 0, 4},
                    Mix{"gpt2_data2_zero1", families::gpt2(), Precision::bf16, 2, 1, 1, 1},
                    Mix{"llama_data4_zero2", families::llama(), Precision::bf16, 4, 1, 1, 2, 2},
                    Mix{"gpt2_data2_zero3", families::gpt2(), Precision::f32, 2, 1, 1, 3, 4, 10'000},
                    Mix{"gpt2_data4_zero3_recompute", families::gpt2(), Precision::f32, 4, 1, 1, 3, 2, 20'000, Recompute::full},
                    Mix{"gpt2_tensor2", families::gpt2(), Precision::f32, 1, 2, 1, 0, 8, 4'000},
                    Mix{"llama_tensor2", families::llama(), Precision::bf16, 1, 2, 1, 0, 8, 2'500},
                    Mix{"gpt2_pipe2", families::gpt2(), Precision::bf16, 1, 1, 2},
                    Mix{"llama_pipe2", families::llama(), Precision::f32, 1, 1, 2},
                    Mix{"gpt2_pipe2_interleaved", families::gpt2(), Precision::f32, 1, 1, 2, 0, 1, 8'192, Recompute::none, "interleaved",
                        2},
                    Mix{"gpt2_pipe2_zero_bubble", families::gpt2(), Precision::f32, 1, 1, 2, 0, 1, 8'192, Recompute::none, "zb-h1"},
                    Mix{"llama_pipe2_data2_zero1", families::llama(), Precision::f32, 2, 1, 2, 1},
                    Mix{"bert_data2_tensor2_zero3", families::bert(), Precision::f32, 2, 2, 1, 3, 4, 4'000}),
    [](const auto& each) { return each.param.name; });

// Columns are computed one by one, so a tile's are those of the whole product: with the head whole, the first loss has the same bits.
TEST_F(Tiled, ForwardPassIsTheSameBits) {
  for (const Family family : {families::gpt2(), families::llama()}) {
    Task task{.model = small_model(family), .samples = 4, .steps = 1};
    task.model.vocab = 31;
    Layout layout = layout_of({"", family, Precision::f32, 1, 1, 1, 0, 4});
    const Outcome whole = train(task, layout);
    layout.strategy.tile = base::Bytes{8'192};
    EXPECT_EQ(train(task, layout).losses, whole.losses);
  }
}

// Every optimizer, updates that are a step late, schedules without a flush, stored activations: what a tile is to them, a weight is.
TEST_F(Tiled, GoesWithOtherChoices) {
  const auto check = [&](const Task& task, Layout layout) {
    const Outcome whole = train(task, layout);
    layout.strategy.tile = base::Bytes{7'000};
    const Outcome tiled = train(task, layout);
    expect_close(tiled, whole, 5e-5);
    expect_close_parameters(tiled, whole, 5e-3);
  };
  const Layout one = layout_of({"", families::gpt2(), Precision::f32, 1, 1, 1, 0, 2});
  const Task task = task_of({"", families::gpt2()});
  for (const char* kind : {"sgd", "momentum", "adam"}) {
    Task other = task;
    other.optimizer = kind;
    check(other, one);
  }
  Layout late = one;
  late.strategy.offload.optimizer = {.host = 1.0};
  late.strategy.delayed_update = true;
  check(task, late);
  Layout without_flush = layout_of({"", families::gpt2(), Precision::f32, 1, 1, 2});
  without_flush.strategy.schedule = "2bw";
  check(task, without_flush);
  Layout stored = one;
  stored.strategy.offload.activations = {.host = 1.0};
  stored.strategy.prefetch = 0;
  check(task, stored);
  Layout groups = layout_of({"", families::gpt2(), Precision::f32, 4, 1, 1, 2});
  groups.strategy.zero_group = 2;
  check(task, groups);
  Layout rows = layout_of({"", families::gpt2(), Precision::f32, 1, 2, 1, 0, 2});
  rows.strategy.sequence_parallel = true;
  check(task, rows);
  Layout shared = layout_of({"", families::llama(), Precision::f32, 1, 4});
  Task grouped = task_of({"", families::llama()});  // two key-value heads for four ranks
  check(grouped, shared);
  Layout split = layout_of({"", families::gpt2(), Precision::f32, 1, 2, 1, 0, 2});
  split.strategy.split_activations = true;
  check(task, split);
}

// Without a clip the host updates each tile behind the call that completes its gradient.
TEST_F(Tiled, IsUpdatedUnderTheBackwardPass) {
  for (const std::int64_t zero : {0, 3}) {
    Task task = task_of({"", families::llama(), Precision::bf16});
    task.clip = 0.0;
    Layout layout = layout_of({"", families::llama(), Precision::bf16, zero == 0 ? 1 : 2, 1, 1, zero, 4});
    layout.strategy.tile = base::Bytes{4'000};
    const Outcome here = train(task, layout);
    const strategy::TierShare host{.host = 1.0};
    layout.strategy.offload = {.optimizer = host, .gradients = {}, .params = host, .activations = {}};
    expect_same_bits(train(task, layout), here);
  }
}

// Any size of a tile, from one row to almost everything.
TEST_F(Tiled, AnySizeWillDo) {
  const Task task = task_of({"", families::gpt2()});
  Layout layout = layout_of({"", families::gpt2(), Precision::f32, 1, 1, 1, 0, 8});
  const Outcome whole = train(task, layout);
  const base::RandomKey key = base::random_key(11, 4);
  for (std::uint32_t number = 0; number < 12; ++number) {
    layout.strategy.tile = base::Bytes{420 + static_cast<std::int64_t>(base::philox({number, 0, 0, 0}, key)[0] % 50'000)};
    SCOPED_TRACE(layout.strategy.tile.count);
    const Outcome tiled = train(task, layout);
    expect_close(tiled, whole, 5e-5);
    expect_close_parameters(tiled, whole, 5e-3);
  }
}

// One layer's weight is more than all that the device holds.
TEST_F(Tiled, DeviceMayBeSmallerThanOneWeight) {
  for (const bool on_disk : {false, true}) {
    Task task{.model = small_model(families::llama()), .samples = 1, .steps = 2};
    task.model.ffn = 4'096;
    task.model.vocab = 8'192;
    task.model.tied = false;
    const strategy::TierShare share = on_disk ? strategy::TierShare{.disk = 1.0} : strategy::TierShare{.host = 1.0};
    Layout layout = layout_of({"", families::llama()});
    layout.disk_folder = folder_.path().string();
    layout.strategy.offload = {.optimizer = share, .gradients = share, .params = share, .activations = {}};
    layout.strategy.prefetch = 1;
    const Outcome whole = train(task, layout);
    layout.strategy.tile = base::Bytes{64 * 1024};
    const Outcome tiled = train(task, layout);
    expect_close(tiled, whole, 5e-5);
    const std::int64_t gate_and_up = 2 * 4'096 * 64 * 4;
    EXPECT_GT(whole.arena, 2 * gate_and_up);
    EXPECT_LT(tiled.arena, gate_and_up);
  }
}

// Head and embedding each add to a tied table's gradient; between the two it is away like the rest.
TEST_F(Tiled, ATiedTableMayBeLargerThanTheDevice) {
  for (const std::int64_t data : {1, 2}) {
    for (const std::int64_t micro : {1, 4}) {
      Task task{.model = small_model(families::llama()), .samples = 8, .steps = 2};
      task.model.vocab = 16'384;
      task.model.tied = true;
      Layout layout = layout_of({.name = "", .family = families::llama(), .data = data, .zero = data > 1 ? 3 : 0, .micro = micro});
      layout.disk_folder = folder_.path().string();
      layout.strategy.prefetch = 1;
      layout.strategy.keep_grads = false;
      layout.strategy.tile = base::Bytes{64 * 1024};
      const Outcome kept = train(task, layout);
      for (const bool on_disk : {false, true}) {
        SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches, {}", data, micro, on_disk ? "disk" : "host"));
        const strategy::TierShare share = on_disk ? strategy::TierShare{.disk = 1.0} : strategy::TierShare{.host = 1.0};
        layout.strategy.offload = {.optimizer = share, .gradients = share, .params = share, .activations = {}};
        const Outcome away = train(task, layout);
        expect_same_bits(away, kept);
        EXPECT_LT(away.arena, 16'384 * 64 * 4);
      }
    }
  }
}

TEST_F(Tiled, IsRefusedWhereItCannotBe) {
  const auto refusal = [](const Task& task, std::int64_t tile) -> std::string {
    Layout layout = layout_of({"", families::gpt2(), Precision::f32, 1, 1, 1, 0, 4});
    layout.strategy.tile = base::Bytes{tile};
    try {
      train(task, layout);
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::not_legal);
      return error.what();
    }
    return "";
  };
  Task task = task_of({"", families::gpt2()});
  EXPECT_NE(refusal(task, 200).find("a row of"), std::string::npos) << refusal(task, 200);
  task.model.vocab = 5'000;
  EXPECT_NE(refusal(task, 1'024).find("1250 tiles"), std::string::npos) << refusal(task, 1'024);
  task.precision = Precision::fp8;
  EXPECT_NE(refusal(task, 8'192).find("needs blocks.0"), std::string::npos) << refusal(task, 8'192);
}

}  // namespace
}  // namespace plimsoll::ranks

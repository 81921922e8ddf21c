// Whatever is made again in the backward pass, and however ranks share the rest, every bit is that of the run that keeps
// everything; and what a plan says it keeps is what it keeps.
#include <gtest/gtest.h>

#include "base/error.h"
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
  std::int64_t micro_batches = 1;
};

Task task_of(const Mix& mix) {
  Task task{
      .model = small_model(mix.family), .precision = mix.precision, .samples = 6 * std::max<std::int64_t>(1, mix.data / 2), .steps = 2};
  task.model.layers = 4;
  task.model.dropout = 0.1;
  task.model.attention_dropout = 0.1;
  task.model.embedding_dropout = 0.1;
  if (mix.tensor > 1) task.model.kv_heads = 4;
  task.model.qk_norm = mix.family == families::llama();
  return task;
}

Layout layout_of(const Mix& mix, std::int64_t zero) {
  Layout layout{.strategy = {}, .micro = task_of(mix).samples / (mix.data * mix.micro_batches)};
  layout.strategy.data = mix.data;
  layout.strategy.tensor = mix.tensor;
  layout.strategy.zero = zero;
  layout.strategy.bucket = base::Bytes{20'000};
  return layout;
}

void expect_same(const Outcome& found, const Outcome& kept) {
  EXPECT_EQ(found.losses, kept.losses);
  EXPECT_EQ(found.norms, kept.norms);
  EXPECT_EQ(found.evaluation, kept.evaluation);
  for (const auto& [name, values] : kept.parameters) EXPECT_EQ(found.parameters.at(name), values) << name;
  EXPECT_EQ(found.sent, found.predicted);
}

class SameBits : public testing::TestWithParam<Mix> {};

TEST_P(SameBits, AsEverythingKept) {
  const Mix& mix = GetParam();
  const Task task = task_of(mix);
  for (std::int64_t zero : {0, 1, 2, 3}) {
    if (mix.data == 1 && zero > 0) continue;
    SCOPED_TRACE(fmt::format("ZeRO {}", zero));
    const Layout layout = layout_of(mix, zero);
    const Outcome kept = train(task, layout);
    const auto changed = [&](auto change) {
      Layout other = layout;
      change(other.strategy);
      const Outcome found = train(task, other);
      expect_same(found, kept);
      return found;
    };
    const Outcome full = changed([](strategy::Strategy& s) { s.recompute = Recompute::full; });
    EXPECT_LE(full.activations, kept.activations - (zero == 0 ? 1 : 0));  // weights that ZeRO gathers count too
    const Outcome selective = changed([](strategy::Strategy& s) { s.recompute = Recompute::selective; });
    EXPECT_LE(selective.activations, kept.activations - (zero == 0 ? 1 : 0));
    if (zero == 1 || zero == 2) continue;  // what is kept of a micro-batch does not depend on these
    changed([](strategy::Strategy& s) {
      s.recompute = Recompute::full;
      s.recompute_every = 2;
    });
    const double as_full = 1.02 * static_cast<double>(full.activations) / static_cast<double>(kept.activations);
    for (double share : {(1.0 + as_full) / 2, as_full}) {
      SCOPED_TRACE(fmt::format("optimal, {}", share));
      const Outcome optimal = changed([&](strategy::Strategy& s) {
        s.recompute = Recompute::optimal;
        s.recompute_memory = std::min(1.0, share);
      });
      EXPECT_LE(static_cast<double>(optimal.activations), share * static_cast<double>(kept.activations));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, SameBits,
                         testing::Values(Mix{"gpt2_f32", families::gpt2()}, Mix{"gpt2_f32_3", families::gpt2(), Precision::f32, 1, 1, 3},
                                         Mix{"gpt2_bf16_3", families::gpt2(), Precision::bf16, 1, 1, 3},
                                         Mix{"gpt2_fp16", families::gpt2(), Precision::fp16},
                                         Mix{"llama_f32_3", families::llama(), Precision::f32, 1, 1, 3},
                                         Mix{"llama_bf16", families::llama(), Precision::bf16}, Mix{"bert_f32", families::bert()},
                                         Mix{"bert_fp16_3", families::bert(), Precision::fp16, 1, 1, 3},
                                         Mix{"gpt2_f32_data2_3", families::gpt2(), Precision::f32, 2, 1, 3},
                                         Mix{"llama_bf16_data4", families::llama(), Precision::bf16, 4, 1, 1},
                                         Mix{"gpt2_bf16_tensor2", families::gpt2(), Precision::bf16, 1, 2, 1},
                                         Mix{"bert_f32_data2_tensor2", families::bert(), Precision::f32, 2, 2, 1}),
                         [](const auto& each) { return each.param.name; });

TEST(Recompute, GradientsAreTheSameBits) {
  for (const Family family : {families::gpt2(), families::llama(), families::bert()}) {
    const Mix mix{"", family, Precision::bf16, 1, 1, 3};
    Task task = task_of(mix);
    task.gradients = true;
    Layout layout = layout_of(mix, 0);
    const Outcome kept = train(task, layout);
    ASSERT_GT(kept.gradients.size(), 20u);
    for (const Recompute recompute : {Recompute::full, Recompute::selective}) {
      layout.strategy.recompute = recompute;
      EXPECT_EQ(train(task, layout).gradients, kept.gradients);
    }
  }
}

// ZeRO-3 gathers a block's weights for its second forward pass, and its backward pass has them from there.
TEST(Recompute, ZeroThreeGathersNoMoreThanBefore) {
  const Mix mix{"", families::gpt2(), Precision::f32, 2, 1, 1};
  Layout layout = layout_of(mix, 3);
  const Outcome kept = train(task_of(mix), layout);
  layout.strategy.recompute = Recompute::full;
  EXPECT_EQ(train(task_of(mix), layout).sent, kept.sent);
}

// ZeRO-R: of the inputs of blocks, which all tensor ranks have, each keeps a part.
TEST(Recompute, TensorRanksKeepPartsOfWhatAllHave) {
  for (const std::int64_t tensor : {2, 4}) {
    for (const std::int64_t pipe : {1, 2}) {
      Task task{.model = small_model(tensor == 2 ? families::gpt2() : families::llama()), .samples = 4, .steps = 2};
      task.model.layers = 8;
      task.model.kv_heads = 4;
      task.model.dropout = 0.1;
      Layout layout{.strategy = {}, .micro = 4 / pipe};
      layout.strategy.tensor = tensor;
      layout.strategy.pipe = pipe;
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        layout.strategy.recompute = recompute;
        layout.strategy.split_activations = false;
        const Outcome whole = train(task, layout);
        layout.strategy.split_activations = true;
        const Outcome parts = train(task, layout);
        expect_same(parts, whole);
        EXPECT_LT(parts.activations, whole.activations) << "tensor " << tensor << " pipe " << pipe;
        // What is kept between the passes is inputs of blocks alone: those of half the blocks more or less show the share that is left.
        if (recompute != Recompute::full || pipe > 1) continue;
        Task shallow = task;
        shallow.model.layers = 4;
        const Outcome shallow_parts = train(shallow, layout);
        const std::int64_t inputs = 4 * 4 * kSequence * 64 * 4;  // of four blocks: samples x sequence x width x f32
        EXPECT_LE(parts.activations - shallow_parts.activations, inputs / tensor + 4096);
      }
    }
  }
}

// A limit of the arena holds to the byte, and the least that is possible is named where it cannot.
TEST(Recompute, FitsTheLimitOrSaysWhatItNeeds) {
  const Mix mix{"", families::gpt2()};
  const Task task = task_of(mix);
  Layout layout = layout_of(mix, 0);
  const Outcome kept = train(task, layout);
  layout.strategy.recompute = Recompute::optimal;
  layout.device_limit = base::Bytes{kept.arena};
  EXPECT_EQ(train(task, layout).arena, kept.arena);
  for (std::int64_t less : {64, 20'000, 60'000}) {
    layout.device_limit = base::Bytes{kept.arena - less};
    const Outcome found = train(task, layout);
    expect_same(found, kept);
    EXPECT_LE(found.arena, kept.arena - less);
  }
  layout.device_limit = base::Bytes{kept.arena / 4};
  try {
    train(task, layout);
    FAIL() << "a quarter of the memory was enough";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::not_legal);
    const std::string words = error.what();
    const std::size_t begin = words.find('(') + 1;
    const std::int64_t least = std::stoll(words.substr(begin, words.find(" B)") - begin));
    layout.device_limit = base::Bytes{least};
    EXPECT_LE(train(task, layout).arena, least);
  }
}

}  // namespace
}  // namespace plimsoll::ranks

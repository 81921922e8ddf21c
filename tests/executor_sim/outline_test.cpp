// The outline of a plan takes as long as the plan, to rounding, and its bytes are nearly those of the arena.
#include <gtest/gtest.h>

#include "layouts.h"

namespace plimsoll::executor::sim {
namespace {

struct Case {
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
  std::int64_t chunks = 1;
  std::int64_t zero = 0;
  strategy::Recompute recompute = strategy::Recompute::none;
  const char* schedule = "1f1b";
  bool sequence_parallel = false;
  double optimizer_on_host = 0.0;
};

TEST(Outline, AgreesWithThePlan) {
  using strategy::Recompute;
  const std::vector<Case> cases{
      {},
      {.data = 4},
      {.data = 4, .zero = 1},
      {.data = 4, .zero = 3, .recompute = Recompute::full},
      {.data = 4, .zero = 1, .optimizer_on_host = 1.0},
      {.pipe = 4, .optimizer_on_host = 1.0},
      {.tensor = 4},
      {.data = 2, .tensor = 2, .recompute = Recompute::selective},
      {.data = 2, .tensor = 4, .sequence_parallel = true},
      {.pipe = 4},
      {.pipe = 8, .recompute = Recompute::full},
      {.pipe = 4, .schedule = "gpipe"},
      {.pipe = 4, .schedule = "zb-h1"},
      {.tensor = 2, .pipe = 8, .zero = 1, .recompute = Recompute::full, .schedule = "zb-h1", .sequence_parallel = true},
      {.pipe = 8, .recompute = Recompute::selective, .schedule = "zb-h1"},
      {.pipe = 2, .chunks = 4, .schedule = "interleaved"},
      {.pipe = 4, .chunks = 2, .recompute = Recompute::full, .schedule = "interleaved"},
      {.data = 2, .tensor = 2, .pipe = 4, .zero = 1, .recompute = Recompute::full}};
  for (const std::string_view name : {"dgx-a100-80g:16", "p3.16xlarge:16"}) {
    const cluster::Cluster cluster = cluster::preset(name);
    for (const Case& each : cases) {
      Layout layout{.layers = 8, .width = 256, .heads = 8, .vocab = 1024, .sequence = 128, .micro = 2, .micro_batches = 8};
      layout.strategy.data = each.data;
      layout.strategy.tensor = each.tensor;
      layout.strategy.pipe = each.pipe;
      layout.strategy.chunks = each.chunks;
      layout.strategy.zero = each.zero;
      layout.strategy.recompute = each.recompute;
      layout.strategy.schedule = each.schedule;
      layout.strategy.sequence_parallel = each.sequence_parallel;
      layout.strategy.offload.optimizer.host = each.optimizer_on_host;
      const plan::Plan whole = whole_plan(layout);
      const plan::Plan outline = outline_plan(layout);
      const Result of_whole = simulate(whole, cluster, {});
      const Result of_outline = simulate(outline, cluster, {.tensor_folded = true});
      SCOPED_TRACE(fmt::format("{} on {}", whole.strategy, name));
      EXPECT_NEAR(of_outline.seconds, of_whole.seconds, 2e-3 * of_whole.seconds);
      EXPECT_NEAR(of_outline.hardware_flops, of_whole.hardware_flops, 1e-6 * of_whole.hardware_flops);
      EXPECT_NEAR(of_outline.model_flops, of_whole.model_flops, 1e-6 * of_whole.model_flops);
      EXPECT_NEAR(of_outline.bubble_fraction(), of_whole.bubble_fraction(), 5e-3);
      for (std::size_t link = 0; link < kLinkClasses; ++link)
        EXPECT_NEAR(of_outline.bytes[link], of_whole.bytes[link], 0.01 * of_whole.bytes[link] + 1.0);
      const auto arena = [](const plan::Plan& plan) { return static_cast<double>(plan::fullest_class(plan).arena[0].count); };
      EXPECT_LE(arena(outline), arena(whole));
      EXPECT_GE(arena(outline), 0.97 * arena(whole));
    }
  }
}

}  // namespace
}  // namespace plimsoll::executor::sim

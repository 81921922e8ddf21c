// The outline of a plan takes as long as the plan, to rounding, and its arenas are those of the plan.
#include <gtest/gtest.h>

#include "layouts.h"

namespace plimsoll::executor::sim {
namespace {

using strategy::Recompute;

struct Case {
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
  std::int64_t chunks = 1;
  std::int64_t zero = 0;
  bool keep_grads = true;
  Recompute recompute = Recompute::none;
  const char* schedule = "1f1b";
  bool sequence_parallel = false;
  strategy::TierShare optimizer = {};
  strategy::TierShare gradients = {};
  strategy::TierShare params = {};
  strategy::TierShare activations = {};
  std::int64_t flush_every = 1;
};

Layout layout_of(const Case& each) {
  Layout layout{.layers = 8, .width = 256, .heads = 8, .vocab = 1024, .sequence = 128, .micro = 2, .micro_batches = 8};
  layout.strategy.data = each.data;
  layout.strategy.tensor = each.tensor;
  layout.strategy.pipe = each.pipe;
  layout.strategy.chunks = each.chunks;
  layout.strategy.zero = each.zero;
  layout.strategy.keep_grads = each.keep_grads;
  layout.strategy.recompute = each.recompute;
  if (each.recompute == Recompute::optimal) layout.strategy.recompute_memory = 0.5;
  layout.strategy.schedule = each.schedule;
  layout.strategy.sequence_parallel = each.sequence_parallel;
  layout.strategy.offload = {each.optimizer, each.gradients, each.params, each.activations};
  layout.strategy.flush_every = each.flush_every;
  if (each.flush_every > 1) {
    layout.tied = each.schedule != std::string_view("pipedream");
    layout.clip = 0.0;
  }
  return layout;
}

TEST(Outline, AgreesWithThePlan) {
  constexpr strategy::TierShare kHost{.host = 1.0};
  constexpr strategy::TierShare kDisk{.disk = 1.0};
  const std::vector<Case> cases{
      {},
      {.data = 4},
      {.data = 4, .zero = 1},
      {.data = 4, .zero = 3, .recompute = Recompute::full},
      {.data = 4, .zero = 1, .optimizer = kHost},
      {.pipe = 4, .optimizer = kHost},
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
      {.data = 2, .tensor = 2, .pipe = 4, .zero = 1, .recompute = Recompute::full},
      {.recompute = Recompute::optimal},
      {.data = 2, .optimizer = kDisk},
      {.data = 2, .zero = 3, .optimizer = kHost, .params = kHost},
      {.data = 2, .zero = 3, .keep_grads = false, .optimizer = kDisk, .gradients = kHost, .params = kDisk},
      {.activations = kHost},
      {.recompute = Recompute::full, .activations = kDisk},
      {.pipe = 2, .activations = {.host = 0.5}},
      {.pipe = 4, .schedule = "pipedream", .flush_every = 3},
      {.data = 2, .pipe = 2, .recompute = Recompute::full, .schedule = "pipedream", .flush_every = 2},
      {.pipe = 4, .schedule = "pipedream-vsync", .flush_every = 2},
      {.pipe = 4, .schedule = "2bw", .flush_every = 3},
      {.data = 2, .pipe = 2, .zero = 1, .schedule = "2bw", .flush_every = 2},
      {.pipe = 2, .schedule = "2bw", .optimizer = kHost, .flush_every = 2},
      {.data = 2, .pipe = 2, .zero = 1, .schedule = "zb-h2", .flush_every = 3}};
  for (const std::string_view name : {"dgx-a100-80g:16", "p3.16xlarge:16"}) {
    const cluster::Cluster cluster = cluster::preset(name);
    for (const Case& each : cases) {
      const bool disk = each.optimizer.disk + each.params.disk + each.activations.disk > 0.0;
      if (disk && cluster.find(cluster::Reach::disk) == nullptr) continue;
      const Layout layout = layout_of(each);
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
      ASSERT_EQ(outline.classes.size() * static_cast<std::size_t>(each.tensor), whole.classes.size());
      for (std::size_t index = 0; index < outline.classes.size(); ++index) {
        const plan::RankClass& of_place = whole.classes[index * static_cast<std::size_t>(each.tensor)];
        EXPECT_EQ(outline.classes[index].arena, of_place.arena) << of_place.name;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll::executor::sim

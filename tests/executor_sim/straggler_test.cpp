// Slow ranks and jitter: they delay everybody who waits for them, are the same for the same seed, and split only what they touch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layouts.h"
#include "support/refusal.h"

namespace plimsoll::executor::sim {
namespace {

plan::Plan plan_of(std::int64_t data, std::int64_t tensor, std::int64_t pipe) {
  Layout layout{.layers = 4, .width = 512, .heads = 8, .sequence = 256, .micro_batches = 4};
  layout.strategy.data = data;
  layout.strategy.tensor = tensor;
  layout.strategy.pipe = pipe;
  return whole_plan(layout);
}

TEST(Straggler, DelaysEverybody) {
  const cluster::Cluster cluster = cluster::preset("dgx-a100-80g");
  const plan::Plan plan = plan_of(2, 2, 2);
  const double undisturbed = simulate(plan, cluster, {}).seconds;
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    const Result result = simulate(plan, cluster, {.stragglers = {{.rank = rank, .factor = 2.0}}});
    EXPECT_GT(result.seconds, 1.2 * undisturbed);
    EXPECT_LE(result.seconds, 2.0 * undisturbed);
  }
  EXPECT_EQ(simulate(plan, cluster, {.stragglers = {{.rank = 3, .factor = 1.0}}}).seconds, undisturbed);
}

TEST(Straggler, SplitsTheDataPlaceItIsAt) {
  const cluster::Cluster cluster = cluster::preset("dgx-a100-80g");
  const plan::Plan plan = plan_of(8, 1, 1);
  EXPECT_EQ(simulate(plan, cluster, {}).times.size(), 1u);
  const Result result = simulate(plan, cluster, {.stragglers = {{.rank = 5, .factor = 3.0}}});
  ASSERT_EQ(result.times.size(), 2u);
  EXPECT_EQ(result.times[0].ranks, 7);
  EXPECT_EQ(result.times[1].ranks, 1);
  EXPECT_GT(result.times[0].waiting, result.times[1].waiting);
}

TEST(Jitter, IsTheSameForTheSameSeed) {
  const cluster::Cluster cluster = cluster::preset("dgx-a100-80g");
  const plan::Plan plan = plan_of(4, 1, 2);
  const double undisturbed = simulate(plan, cluster, {}).seconds;
  const double once = simulate(plan, cluster, {.jitter = 0.1, .seed = 7}).seconds;
  EXPECT_EQ(once, simulate(plan, cluster, {.jitter = 0.1, .seed = 7}).seconds);
  EXPECT_NE(once, simulate(plan, cluster, {.jitter = 0.1, .seed = 8}).seconds);
  EXPECT_GT(once, undisturbed);  // whoever waits waits for the slowest
}

TEST(Straggler, MustExist) {
  const cluster::Cluster cluster = cluster::preset("dgx-a100-80g");
  const plan::Plan plan = plan_of(2, 1, 1);
  EXPECT_THAT(tests::refusal([&] { simulate(plan, cluster, {.stragglers = {{.rank = 2, .factor = 2.0}}}); }), testing::HasSubstr("rank 2"));
  EXPECT_THAT(tests::refusal([&] { simulate(plan, cluster, {.stragglers = {{.rank = 0, .factor = 0.0}}}); }), testing::HasSubstr("rank 0"));
}

}  // namespace
}  // namespace plimsoll::executor::sim

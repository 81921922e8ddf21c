// Recompute and offload together: against trying all segments, and at the ends of its range, where it is something known.
#include "solvers/pofo.h"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <random>

namespace plimsoll::solvers {
namespace {

Chain random_chain(std::mt19937& random, int most, int most_forms) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Chain chain{.input = draw(0, 3), .stages = {}};
  const int count = draw(2, most);
  for (int index = 0; index < count; ++index) {
    ChainStage stage{.output = draw(1, 5), .gradient = 0, .forward = static_cast<double>(draw(1, 9)), .temporary = draw(0, 2), .forms = {}};
    stage.gradient = stage.output;
    stage.forward_again = stage.forward;
    for (int form = draw(1, most_forms); form > 0; --form)
      stage.forms.push_back({.saved = stage.output + draw(0, 8), .backward = static_cast<double>(draw(1, 12)), .temporary = draw(0, 5)});
    chain.stages.push_back(std::move(stage));
  }
  return chain;
}

Chain alike(int count) {
  Chain chain{.input = 100, .stages = {}};
  for (int index = 0; index < count; ++index)
    chain.stages.push_back(
        {.output = 100, .gradient = 100, .forward = 1.0, .forward_again = 1.0, .forms = {{1000, 2.0, 100}, {600, 2.2, 300}}});
  return chain;
}

RotorOptions exact(std::int64_t memory) { return {.slots = static_cast<std::int32_t>(memory), .drops_inputs = false}; }

double all_once(const Chain& chain) {
  double sum = 0.0;
  for (const ChainStage& stage : chain.stages) {
    double best = stage.forms[0].backward;
    for (const ChainForm& form : stage.forms) best = std::min(best, form.backward);
    sum += stage.forward + best;
  }
  return sum;
}

std::int64_t memory_of_all(const Chain& chain) { return replay(chain, keep_all(chain)).peak; }

// The least time over all ways to cut and keep.
std::optional<double> best_of_all(const Chain& chain, const JointProgramme& programme) {
  const auto count = static_cast<std::int32_t>(chain.stages.size());
  std::optional<double> best;
  std::vector<ChainSegment> segments;
  const std::function<void(std::int32_t)> cut = [&](std::int32_t first) {
    if (first == count) {
      const std::optional<JointOrder> cost = programme.cost_of(segments);
      if (cost && (!best || cost->time < *best)) best = cost->time;
      return;
    }
    for (std::int32_t last = first; last < count; ++last) {
      const auto forms = static_cast<std::int32_t>(chain.stages[static_cast<std::size_t>(first)].forms.size());
      for (std::int32_t form = ChainStep::kOutputOnly; form < (last == first ? forms : 0); ++form) {
        if (form == ChainStep::kOutputOnly && last + 1 == count) continue;
        for (const bool leaves : {false, true}) {
          for (const bool waits : {false, true}) {
            if (waits && form != ChainStep::kOutputOnly) continue;
            segments.push_back({first, last, form, leaves, waits});
            cut(last + 1);
            segments.pop_back();
          }
        }
      }
    }
  };
  cut(0);
  return best;
}

class JointChains : public testing::TestWithParam<int> {};

TEST_P(JointChains, IsTheBestOfAllSegments) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  int moved = 0;
  for (int trial = 0; trial < 6; ++trial) {
    const Chain chain = random_chain(random, 4, 2);
    const std::int64_t all = memory_of_all(chain);
    for (const std::int64_t memory : {all / 2, 2 * all / 3, 5 * all / 6}) {
      for (const double rate : {0.2, 1.0, 5.0}) {
        const JointProgramme programme(chain, memory, {.out = rate, .in = 1.5 * rate}, exact(memory));
        const std::optional<double> expected = best_of_all(chain, programme);
        const std::optional<JointOrder> found = programme.fastest();
        ASSERT_EQ(found.has_value(), expected.has_value()) << memory;
        if (!found) continue;
        EXPECT_DOUBLE_EQ(found->time, *expected) << memory << " of " << all << " at " << rate;
        EXPECT_DOUBLE_EQ(programme.cost_of(found->segments)->time, found->time);
        replay(chain, programme.order_of(*found));  // every pass has what it needs
        moved += found->moved > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(moved, 0);
}

TEST_P(JointChains, WithoutALinkItIsRotor) {
  std::mt19937 random(static_cast<unsigned>(100 + GetParam()));
  for (int trial = 0; trial < 10; ++trial) {
    const Chain chain = random_chain(random, 6, 2);
    const std::int64_t all = memory_of_all(chain);
    for (const std::int64_t memory : {all / 2, 2 * all / 3, all - 1}) {
      const JointProgramme programme(chain, memory, {}, exact(memory));
      const std::optional<JointOrder> found = programme.fastest();
      const std::optional<ChainOrder> rotor = fastest_order(chain, memory, exact(memory));
      ASSERT_EQ(found.has_value(), rotor.has_value()) << memory;
      if (!found) continue;
      EXPECT_NEAR(found->time, replay(chain, *rotor).time, 1e-4);
      const ChainCost cost = replay(chain, programme.order_of(*found));
      EXPECT_NEAR(cost.time, found->time, 1e-4);
      EXPECT_LE(cost.peak, memory);
    }
  }
}

TEST_P(JointChains, AFasterLinkIsNeverSlower) {
  std::mt19937 random(static_cast<unsigned>(200 + GetParam()));
  for (int trial = 0; trial < 6; ++trial) {
    const Chain chain = random_chain(random, 5, 1);
    const std::int64_t memory = 2 * memory_of_all(chain) / 3;
    double before = std::numeric_limits<double>::infinity();
    for (const double rate : {0.0, 0.1, 0.5, 2.0, 10.0, 1e12}) {
      const std::optional<JointOrder> found = JointProgramme(chain, memory, {.out = rate, .in = rate}, exact(memory)).fastest();
      if (!found) continue;
      EXPECT_LE(found->time, before + 1e-9) << rate;
      before = found->time;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, JointChains, testing::Range(0, 8));

TEST(Joint, EnoughMemoryOrAnInfiniteLinkMakeNothingAgain) {
  const Chain chain = alike(12);
  const std::int64_t all = memory_of_all(chain);
  const std::optional<JointOrder> kept = JointProgramme(chain, all, {.out = 1.0, .in = 1.0}, exact(all)).fastest();
  ASSERT_TRUE(kept);
  EXPECT_NEAR(kept->time, all_once(chain), 1e-4);
  EXPECT_EQ(kept->moved, 0);
  const std::int64_t little = 3000;  // two stages and a little more
  const std::optional<JointOrder> linked = JointProgramme(chain, little, {.out = 1e12, .in = 1e12}, exact(little)).fastest();
  ASSERT_TRUE(linked);
  EXPECT_NEAR(linked->time, all_once(chain), 1e-4);
  EXPECT_GT(linked->moved, 8 * 600);
  // Between the two: better than each alone.
  const std::optional<JointOrder> both = JointProgramme(chain, 4000, {.out = 300.0, .in = 300.0}, exact(4000)).fastest();
  const std::optional<JointOrder> again = JointProgramme(chain, 4000, {}, exact(4000)).fastest();
  ASSERT_TRUE(both && again);
  EXPECT_LT(both->time, again->time);
}

// Less than a second on a quiet machine.
TEST(Joint, AHundredStages) {
  const Chain chain = alike(100);
  const std::clock_t start = std::clock();
  const std::optional<JointOrder> found = JointProgramme(chain, 20'000, {.out = 200.0, .in = 200.0}).fastest();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  RecordProperty("seconds", std::to_string(seconds));
  ASSERT_TRUE(found);
  EXPECT_LT(found->time, JointProgramme(chain, 20'000, {}).fastest()->time);
  // Where there is hardly enough memory at all, something is found too.
  const std::int64_t least = least_memory(chain, {.drops_inputs = false});
  EXPECT_TRUE(JointProgramme(chain, least + least / 50, {.out = 200.0, .in = 200.0}, {.drops_inputs = false}).fastest());
}

}  // namespace
}  // namespace plimsoll::solvers

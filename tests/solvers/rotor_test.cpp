// The dynamic programme against trying everything, against closed forms and against the worked example of the literature.
#include "solvers/rotor.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "solvers/brute_force.h"

namespace plimsoll::solvers {
namespace {

// One slot for each byte: nothing is lost to rounding.
std::optional<ChainOrder> exact(const Chain& chain, std::int64_t memory, bool drops_inputs) {
  return fastest_order(chain, memory, {.slots = static_cast<std::int32_t>(memory), .drops_inputs = drops_inputs});
}

Chain random_chain(std::mt19937& random, std::size_t most, std::size_t most_forms, bool plain = false) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Chain chain{.input = draw(0, 3), .stages = {}};
  const int count = draw(2, static_cast<int>(most));
  for (int index = 0; index < count; ++index) {
    ChainStage stage{.output = draw(1, 5), .gradient = 0, .forward = static_cast<double>(draw(1, 9)), .temporary = draw(0, 2), .forms = {}};
    stage.gradient = stage.output;
    stage.forward_again = plain ? stage.forward : std::max(1.0, stage.forward - draw(0, 3));
    stage.weight_gradients = plain ? 0 : draw(0, 3);
    const int forms = draw(1, static_cast<int>(most_forms));
    for (int form = 0; form < forms; ++form)
      stage.forms.push_back({.saved = stage.output + draw(0, 8), .backward = static_cast<double>(draw(1, 12)), .temporary = draw(0, 5)});
    chain.stages.push_back(std::move(stage));
  }
  return chain;
}

// Memories from too little to enough.
std::vector<std::int64_t> memories(const Chain& chain) {
  const std::int64_t all = replay(chain, keep_all(chain)).peak;
  return {all / 3, all / 2, 2 * all / 3, 3 * all / 4, all - 1, all};
}

class RandomChains : public testing::TestWithParam<int> {};

TEST_P(RandomChains, PublishedProgrammeIsBruteForce) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  for (int trial = 0; trial < 12; ++trial) {
    const Chain chain = random_chain(random, 5, 2, true);
    for (std::int64_t memory : memories(chain)) {
      const std::optional<double> expected = brute_force(chain, memory, Drops::checkpoints);
      const std::optional<ChainOrder> found = exact(chain, memory, false);
      ASSERT_EQ(found.has_value(), expected.has_value()) << memory;
      if (!found) continue;
      const ChainCost cost = replay(chain, *found);
      EXPECT_EQ(cost.time, *expected) << to_string(*found);
      EXPECT_LE(cost.peak, memory);
    }
  }
}

// Two things the published model has not, and for which keeping checkpoints until they are used up is not always best: weight
// gradients that fill the memory as the backward pass goes, and second forward passes that can end early. The programme
// stays within the memory and close.
TEST_P(RandomChains, WeightGradientsAndShortRunsStayClose) {
  std::mt19937 random(static_cast<unsigned>(500 + GetParam()));
  for (int trial = 0; trial < 12; ++trial) {
    const Chain chain = random_chain(random, 5, 1);
    for (std::int64_t memory : memories(chain)) {
      const std::optional<double> least = brute_force(chain, memory, Drops::checkpoints);
      const std::optional<ChainOrder> found = exact(chain, memory, false);
      ASSERT_EQ(found.has_value(), least.has_value()) << memory;
      if (!found) continue;
      EXPECT_LE(replay(chain, *found).peak, memory);
      EXPECT_GE(replay(chain, *found).time, *least);
      EXPECT_LE(replay(chain, *found).time, 1.25 * *least);
    }
  }
}

TEST_P(RandomChains, DroppingInputsIsNeverSlowerAndNeverBeatsTryingEverything) {
  std::mt19937 random(static_cast<unsigned>(1000 + GetParam()));
  for (int trial = 0; trial < 8; ++trial) {
    const Chain chain = random_chain(random, 5, 2);
    for (std::int64_t memory : memories(chain)) {
      const std::optional<double> least = brute_force(chain, memory, Drops::anything);
      const std::optional<ChainOrder> found = exact(chain, memory, true);
      const std::optional<ChainOrder> published = exact(chain, memory, false);
      if (published) {
        ASSERT_TRUE(found);
        EXPECT_LE(replay(chain, *found).time, replay(chain, *published).time);
      }
      if (!found) continue;
      ASSERT_TRUE(least);
      EXPECT_GE(replay(chain, *found).time, *least);
      EXPECT_LE(replay(chain, *found).peak, memory);
    }
  }
}

// Models repeat their blocks: runs of equal stages share what the programme knows of them.
TEST_P(RandomChains, EqualStagesAreBruteForceToo) {
  std::mt19937 random(static_cast<unsigned>(2000 + GetParam()));
  for (int trial = 0; trial < 8; ++trial) {
    Chain chain = random_chain(random, 2, 2, true);
    const std::size_t copies = std::uniform_int_distribution<std::size_t>(2, 3)(random);
    const std::size_t at = std::uniform_int_distribution<std::size_t>(0, chain.stages.size() - 1)(random);
    chain.stages.insert(chain.stages.begin() + static_cast<std::ptrdiff_t>(at), copies, ChainStage(chain.stages[at]));
    for (std::int64_t memory : memories(chain)) {
      const std::optional<double> expected = brute_force(chain, memory, Drops::checkpoints);
      const std::optional<ChainOrder> found = exact(chain, memory, false);
      ASSERT_EQ(found.has_value(), expected.has_value()) << memory;
      if (!found) continue;
      EXPECT_EQ(replay(chain, *found).time, *expected) << to_string(*found);
      EXPECT_LE(replay(chain, *found).peak, memory);
    }
  }
}

TEST_P(RandomChains, FittingIsKnownWithoutTheTable) {
  std::mt19937 random(static_cast<unsigned>(3000 + GetParam()));
  for (int trial = 0; trial < 20; ++trial) {
    const Chain chain = random_chain(random, 6, 2);
    const std::int64_t all = replay(chain, keep_all(chain)).peak;
    for (const bool drops : {false, true}) {
      for (const std::int32_t slots : {5, 17, 500}) {
        const RotorOptions options{.slots = slots, .drops_inputs = drops};
        for (std::int64_t memory = 0; memory <= all + 2; ++memory)
          ASSERT_EQ(RotorTable::fits(chain, memory, options), fastest_order(chain, memory, options).has_value()) << memory << " of " << all;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomChains, testing::Range(0, 10));

// Over many chains of up to five stages, with dropped inputs nearly nothing is left to gain.
TEST(Rotor, DroppedInputsCloseTheGap) {
  std::mt19937 random(77);
  int published_behind = 0;
  int behind = 0;
  int solved = 0;
  for (int trial = 0; trial < 150; ++trial) {
    const Chain chain = random_chain(random, 5, 1);
    const std::int64_t all = replay(chain, keep_all(chain)).peak;
    const std::int64_t memory = all * std::uniform_int_distribution<std::int64_t>(50, 90)(random) / 100;
    const std::optional<double> least = brute_force(chain, memory, Drops::anything);
    if (!least) continue;
    ++solved;
    const auto behind_by = [&](bool drops) {
      const std::optional<ChainOrder> order = exact(chain, memory, drops);
      return !order || replay(chain, *order).time > *least ? 1 : 0;
    };
    published_behind += behind_by(false);
    behind += behind_by(true);
  }
  RecordProperty("solved", solved);
  RecordProperty("published_behind", published_behind);
  RecordProperty("behind", behind);
  EXPECT_GT(solved, 50);
  EXPECT_GT(published_behind, 3 * behind);
}

ChainStage plain_stage(std::int64_t output, std::int64_t saved) {
  return {.output = output,
          .gradient = output,
          .forward = 1.0,
          .forward_again = 1.0,
          .forms = {{.saved = saved, .backward = 2.0, .temporary = output}}};
}

// Six stages and a loss; room for three forms and two checkpoints.
TEST(Rotor, WorkedExample) {
  const ChainOrder order{
      {ChainStep::Work::forward, 0, -1, false}, {ChainStep::Work::forward, 1, -1, true},  {ChainStep::Work::forward, 2, -1, true},
      {ChainStep::Work::forward, 3, 0, false},  {ChainStep::Work::forward, 4, 0, false},  {ChainStep::Work::forward, 5, 0, false},
      {ChainStep::Work::forward, 6, 0, false},  {ChainStep::Work::backward, 6, 0, false}, {ChainStep::Work::backward, 5, 0, false},
      {ChainStep::Work::backward, 4, 0, false}, {ChainStep::Work::backward, 3, 0, false}, {ChainStep::Work::forward, 0, -1, false},
      {ChainStep::Work::forward, 1, -1, true},  {ChainStep::Work::forward, 2, 0, false},  {ChainStep::Work::backward, 2, 0, false},
      {ChainStep::Work::forward, 0, 0, false},  {ChainStep::Work::forward, 1, 0, false},  {ChainStep::Work::backward, 1, 0, false},
      {ChainStep::Work::backward, 0, 0, false},
  };
  // Sizes that leave no cheaper choice: late forms are small, early ones large.
  Chain chain{.input = 1, .stages = {}};
  for (const std::int64_t saved : {6, 6, 9, 3, 3, 3}) chain.stages.push_back(plain_stage(1, saved));
  chain.stages.push_back({.forward = 1.0, .forms = {{.saved = 0, .backward = 1.0, .temporary = 1}}});
  const ChainCost cost = replay(chain, order);
  EXPECT_EQ(cost.forwards, (std::vector<std::int32_t>{3, 3, 2, 1, 1, 1, 1}));
  EXPECT_EQ(cost.time, 3 + 3 + 2 + 4 + 12 + 1);
  EXPECT_EQ(to_string(order), "F1ck F2n F3n F4e0 F5e0 F6e0 F7e0 B7 B6 B5 B4 F1ck F2n F3e0 B3 F1e0 F2e0 B2 B1");
  const std::optional<ChainOrder> found = exact(chain, cost.peak, false);
  ASSERT_TRUE(found);
  EXPECT_EQ(replay(chain, *found).time, *brute_force(chain, cost.peak, Drops::checkpoints));
  EXPECT_LE(replay(chain, *found).time, cost.time);
}

TEST(Rotor, WithEnoughMemoryNothingRunsTwice) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    const Chain chain = random_chain(random, 12, 1);
    const ChainCost all = replay(chain, keep_all(chain));
    const std::optional<ChainOrder> found = exact(chain, all.peak, true);
    ASSERT_TRUE(found);
    EXPECT_EQ(replay(chain, *found).time, all.time);
  }
}

// Where a form is so large that only one fits beside `slots` outputs, the extra forward passes are Revolve's: with s places for
// checkpoints the last of L steps is reached in the fewest advances.
std::int64_t revolve(std::int64_t steps, std::int64_t places) {
  if (steps <= 1) return 0;
  if (places == 1) return steps * (steps - 1) / 2;
  std::int64_t best = steps * steps;
  for (std::int64_t first = 1; first < steps; ++first)
    best = std::min(best, first + revolve(steps - first, places - 1) + revolve(first, places));
  return best;
}

TEST(Rotor, OneFormAtATimeIsRevolve) {
  constexpr std::int64_t kForm = 1000;
  const std::vector<std::int64_t> eight{28, 14, 11, 10, 9, 8, 7};
  for (std::int64_t places = 1; places <= 7; ++places) EXPECT_EQ(revolve(8, places), eight[static_cast<std::size_t>(places - 1)]);
  for (const std::int64_t length : {4, 6, 8}) {
    for (std::int64_t places = 1; places < length; ++places) {
      Chain chain{.input = 1, .stages = {}};
      for (std::int64_t index = 0; index < length; ++index) {
        chain.stages.push_back({.output = 1,
                                .gradient = 0,
                                .forward = 1.0,
                                .forward_again = 1.0,
                                .forms = {{.saved = kForm, .backward = 1.0, .temporary = 0}}});
      }
      // The chain's input is one place; what the stage in hand reads lies beside the places.
      const std::optional<ChainOrder> found = exact(chain, 1 + places + kForm, false);
      ASSERT_TRUE(found);
      const ChainCost cost = replay(chain, *found);
      const double extra = cost.time - 2.0 * static_cast<double>(length);
      EXPECT_EQ(extra, static_cast<double>(revolve(length, places))) << length << " stages, " << places << " places";
    }
  }
}

TEST(Rotor, SmallerFormsAreTakenWhereTheyPay) {
  Chain chain{.input = 1, .stages = {}};
  for (int index = 0; index < 6; ++index) {
    ChainStage stage = plain_stage(2, 16);
    stage.forward = stage.forward_again = 10.0;
    stage.forms.push_back({.saved = 10, .backward = 2.5, .temporary = 8});
    chain.stages.push_back(stage);
  }
  const std::int64_t all = replay(chain, keep_all(chain)).peak;
  const std::optional<ChainOrder> found = exact(chain, 3 * all / 4, true);
  ASSERT_TRUE(found);
  const ChainCost cost = replay(chain, *found);
  EXPECT_LT(cost.time, 6 * 12.5 + 0.1);
  EXPECT_EQ(cost.forwards, std::vector<std::int32_t>(6, 1));
}

TEST(Rotor, RoundingToSlotsStaysWithinTheMemory) {
  std::mt19937 random(6);
  for (int trial = 0; trial < 20; ++trial) {
    Chain chain = random_chain(random, 14, 2);
    for (ChainStage& stage : chain.stages) {
      stage.output = stage.gradient = stage.output * 1'234'567 + trial;
      for (ChainForm& form : stage.forms) form.saved = form.saved * 1'234'567 + trial;
    }
    const std::int64_t least = least_memory(chain);
    for (const std::int64_t memory : {least, least + least / 5, 2 * least}) {
      const std::optional<ChainOrder> found = fastest_order(chain, memory);
      ASSERT_TRUE(found);
      EXPECT_LE(replay(chain, *found).peak, memory);
    }
    EXPECT_FALSE(fastest_order(chain, least - least / 50));
  }
}

TEST(Rotor, AHundredStagesTakeUnderASecond) {
  std::mt19937 random(9);
  Chain chain = random_chain(random, 2, 1);
  chain.stages.clear();
  for (int index = 0; index < 100; ++index) {
    ChainStage stage = plain_stage(4 + index % 3, 40 + index % 7);
    stage.forms.push_back({.saved = 25, .backward = 2.2, .temporary = 20});
    chain.stages.push_back(stage);
  }
  const std::int64_t all = replay(chain, keep_all(chain)).peak;
  const std::clock_t start = std::clock();  // other tests run beside this one
  const std::optional<ChainOrder> found = fastest_order(chain, all / 2);
  const double spent = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(found);
  EXPECT_LE(replay(chain, *found).peak, all / 2);
  RecordProperty("milliseconds", static_cast<int>(spent * 1e3));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(spent, 1.0);
#endif
}

TEST(RotorDeathTest, WrongOrdersAreFound) {
  const Chain chain{.input = 1, .stages = {plain_stage(1, 2), plain_stage(1, 2)}};
  const ChainOrder good = keep_all(chain);
  EXPECT_NO_THROW(replay(chain, good));
  for (std::size_t lost = 0; lost < good.size(); ++lost) {
    ChainOrder bad = good;
    bad.erase(bad.begin() + static_cast<std::ptrdiff_t>(lost));
    EXPECT_DEATH(replay(chain, bad), "stage") << lost;
  }
  ChainOrder swapped = good;
  std::swap(swapped[2], swapped[3]);
  EXPECT_DEATH(replay(chain, swapped), "out of turn");
}

}  // namespace
}  // namespace plimsoll::solvers

// The search against the evaluation of every choice, and its bounds against what is found exactly.
#include <gtest/gtest.h>

#include "planner/problems.h"
#include "strategy/legality.h"

namespace plimsoll::tests {
namespace {

using planner::Candidate;
using planner::Choice;
using planner::Estimate;
using planner::Estimator;
using planner::Found;
using planner::Pins;
using planner::Problem;
using planner::Space;
using strategy::Recompute;
using strategy::StagePartition;

std::int64_t choices_in(const Space& space, const Problem& problem) {
  std::int64_t count = 0;
  space.visit_shapes(problem, [&](const Choice& shape) {
    space.visit_sharing(problem, shape, [&](const Choice& choice) {
      ++count;
      space.visit_tiers(problem, choice, [&](const Choice&) { ++count; });
    });
  });
  return count;
}

// Gives the best choice in words; empty where nothing fits.
std::string expect_optimum(const Problem& problem, const Space& space) {
  Estimator pruned(problem);
  Estimator brute(problem);
  const Found fast = planner::search(pruned, space);
  const Found all = planner::search(brute, space, {.prune = false, .most_pieces = std::int64_t{1} << 40});
  EXPECT_TRUE(all.complete);
  EXPECT_TRUE(fast.complete);
  EXPECT_EQ(fast.candidates.empty(), all.candidates.empty());
  if (all.candidates.empty() || fast.candidates.empty()) {
    EXPECT_GT(fast.least_device, problem.device);
    return "";
  }
  EXPECT_DOUBLE_EQ(fast.candidates[0].estimate.step_seconds, all.candidates[0].estimate.step_seconds)
      << planner::describe(fast.candidates[0].choice) << "\nbut brute force finds\n"
      << planner::describe(all.candidates[0].choice);
  EXPECT_LE(fast.progress.evaluated, all.progress.evaluated);
  return planner::describe(fast.candidates[0].choice);
}

// The cases are such that every kind of answer wins somewhere.
void expect_words(const std::string& winners, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(winners.find(word), std::string::npos) << word << " never wins";
}

std::vector<ProblemSizes> small_cases() {
  std::vector<ProblemSizes> cases;
  for (const std::int64_t ranks : {1, 2, 4, 6, 8}) {
    for (const std::int64_t layers : {2, 5, 6}) {
      for (const double memory : {0.02, 0.1, 0.4, 3.0}) {
        for (const double bandwidth : {1e9, 1e11}) {
          cases.push_back({.layers = layers,
                           .batch = ranks == 6 ? 12 : 8,
                           .ranks = ranks,
                           .per_node = ranks == 8 ? 4 : ranks,
                           .memory = memory,
                           .bandwidth = bandwidth,
                           .layer_weights = layers == 6 ? 2'000'000 : 40'000'000,
                           .host = layers == 5,
                           .disk = layers == 5 && ranks <= 2});
        }
      }
    }
  }
  return cases;
}

// Between what keeps everything and what makes everything again, stages that keep what fits are best.
TEST(PlannerSearch, EqualsBruteForceWhereStagesKeepWhatFits) {
  std::string winners;
  for (const char* schedule : {"1f1b", "interleaved", "gpipe"}) {
    for (const double memory : {0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5}) {
      const Problem problem = small_problem({.layers = 8, .batch = 8, .ranks = 4, .memory = memory, .layer_weights = 2'000'000});
      winners += expect_optimum(problem, planner::whole_space(problem, {.tensor = 1, .pipe = 4, .schedule = schedule}, {})) + "\n";
    }
  }
  expect_words(winners, {"recompute optimal"});
}

TEST(PlannerSearch, EqualsBruteForceOverTheWholeSpace) {
  std::string winners;
  for (const ProblemSizes& sizes : small_cases()) {
    SCOPED_TRACE(testing::Message() << sizes.ranks << " ranks, " << sizes.layers << " layers, memory " << sizes.memory << ", bandwidth "
                                    << sizes.bandwidth);
    const Problem problem = small_problem(sizes);
    const Space space = planner::whole_space(problem, {}, {});
    ASSERT_LE(choices_in(space, problem), 100'000);
    winners += expect_optimum(problem, space) + "\n";
  }
  // Several micro-batches on data ranks alone, for each of which ZeRO 3 would gather the weights.
  for (const double memory : {0.3, 0.35, 0.4, 0.45, 0.5}) {
    const Problem problem = small_problem({.layers = 6, .batch = 32, .ranks = 4, .memory = memory});
    winners += expect_optimum(problem, planner::whole_space(problem, {.tensor = 1, .pipe = 1, .micro = 1}, {})) + "\n";
  }
  expect_words(winners,
               {"recompute optimal", "optimizer in the host's memory", "weights in the host's memory", "ZeRO 1", "tensor 2", "in tiles"});
}

// Calls `check` with all pinned but one question or two, for a pipeline and for stages that are whole models.
void for_every_pair(const std::function<void(const Pins&)>& check) {
  using planner::Tier;
  const std::vector<std::function<void(Pins&)>> open{[](Pins& pins) { pins.data = pins.tensor = pins.pipe = {}; },
                                                     [](Pins& pins) { pins.chunks = {}, pins.schedule = {}; },
                                                     [](Pins& pins) { pins.zero = {}; },
                                                     [](Pins& pins) { pins.zero = 3, pins.keep_params = pins.keep_grads = {}; },
                                                     [](Pins& pins) { pins.micro = {}; },
                                                     [](Pins& pins) { pins.sequence_parallel = {}; },
                                                     [](Pins& pins) { pins.recompute = {}; },
                                                     [](Pins& pins) { pins.partition = {}; },
                                                     [](Pins& pins) { pins.optimizer = {}; },
                                                     [](Pins& pins) { pins.optimizer = pins.params = {}; },
                                                     [](Pins& pins) { pins.optimizer = pins.gradients = {}; },
                                                     [](Pins& pins) { pins.activations = {}; },
                                                     [](Pins& pins) { pins.precision = {}; }};
  for (const std::int64_t pipe : {1, 2}) {
    const Pins all{.data = pipe == 1 ? 4 : 2,
                   .tensor = 2,
                   .pipe = pipe,
                   .chunks = 1,
                   .zero = 1,
                   .zero_group = 0,
                   .micro = 1,
                   .keep_params = false,
                   .keep_grads = true,
                   .sequence_parallel = false,
                   .schedule = "1f1b",
                   .recompute = pipe == 1 ? Recompute::none : Recompute::full,
                   .partition = StagePartition::equal,
                   .optimizer = Tier::device,
                   .params = Tier::device,
                   .gradients = Tier::device,
                   .activations = Tier::device,
                   .precision = "long"};
    for (std::size_t a = 0; a < open.size(); ++a) {
      for (std::size_t b = a; b < open.size(); ++b) {
        SCOPED_TRACE(testing::Message() << "questions " << a << " and " << b << ", pipe " << pipe);
        Pins pins = all;
        open[a](pins);
        open[b](pins);
        check(pins);
      }
    }
  }
}

TEST(PlannerSearch, EqualsBruteForceForEveryPairOfQuestions) {
  std::string winners;
  for (const std::int64_t weights : {2'000'000, 40'000'000}) {
    for (const double memory : {0.02, 0.06, 0.08, 0.1, 0.12, 0.14, 0.17, 0.2, 0.3}) {
      const Problem problem = small_problem({.layers = 6,
                                             .batch = 8,
                                             .ranks = 8,
                                             .per_node = 4,
                                             .memory = memory,
                                             .bandwidth = 4e9,
                                             .layer_weights = weights,
                                             .host = true,
                                             .disk = true,
                                             .types = true});
      for_every_pair([&](const Pins& pins) { winners += expect_optimum(problem, planner::whole_space(problem, pins, {})) + "\n"; });
    }
  }
  expect_words(winners, {"recompute optimal", "optimizer in the host's memory", "weights in the host's memory",
                         "gradients in the host's memory", "activations in the host's memory", "short", "long"});
}

TEST(PlannerSearch, BoundsAreNeverAboveWhatIsFound) {
  for (const ProblemSizes& sizes : small_cases()) {
    if (sizes.memory != 0.4) continue;
    const Problem problem = small_problem(sizes);
    Estimator estimator(problem);
    const Space space = planner::whole_space(problem, {.schedule = {}}, {});
    space.visit_shapes(problem, [&](const Choice& shape) {
      if (!estimator.reason_against(shape).empty()) return;
      const planner::Bounds of_shape = estimator.shape_bounds(shape);
      const auto check = [&](const Choice& choice) {
        const planner::Bounds bounds = estimator.bounds(choice);
        const Estimate exact = estimator.evaluate(choice);
        if (exact.step_seconds == 0.0) return;  // not legal
        ASSERT_LE(bounds.step_seconds, exact.step_seconds * (1.0 + 1e-12)) << planner::describe(choice);
        ASSERT_LE(of_shape.step_seconds, bounds.step_seconds * (1.0 + 1e-12)) << planner::describe(choice);
        ASSERT_LE(bounds.device, exact.memory.device()) << planner::describe(choice);
        ASSERT_LE(of_shape.device, bounds.device) << planner::describe(choice);
      };
      space.visit_sharing(problem, shape, [&](const Choice& choice) {
        check(choice);
        const Estimate near = estimator.evaluate(choice);
        space.visit_tiers(problem, choice, [&](const Choice& other) {
          check(other);
          // Farther away is never faster, unless what is kept is fitted to what is free.
          const Estimate far = estimator.evaluate(other);
          if (near.step_seconds == 0.0 || far.step_seconds == 0.0 || shape.strategy.recompute == Recompute::optimal) return;
          ASSERT_GE(far.step_seconds, near.step_seconds) << planner::describe(other);
        });
      });
    });
  }
}

TEST(PlannerSearch, TheLeanestFitsWhereAnythingDoes) {
  int fits = 0;
  for (const ProblemSizes& sizes : small_cases()) {
    for (const double memory : {0.4, 1.0}) {
      ProblemSizes tight = sizes;
      tight.memory = memory * sizes.memory;
      const Problem problem = small_problem(tight);
      Estimator whole(problem);
      Estimator lean(problem);
      const bool any = !planner::search(whole, planner::whole_space(problem, {}, {}), {.first_that_fits = true}).candidates.empty();
      EXPECT_EQ(!planner::search(lean, planner::lean_space(problem, {}, {}), {.first_that_fits = true}).candidates.empty(), any)
          << tight.ranks << " ranks, " << tight.layers << " layers, memory " << tight.memory;
      fits += any ? 1 : 0;
    }
  }
  EXPECT_GT(fits, 20);
  EXPECT_LT(fits, 2 * static_cast<int>(small_cases().size()));
}

TEST(PlannerSearch, IsTheSameEveryTime) {
  const Problem problem = small_problem({.layers = 6, .ranks = 8, .memory = 0.1});
  const Space space = planner::whole_space(problem, {}, {});
  Estimator first(problem);
  Estimator second(problem);
  const Found a = planner::search(first, space);
  const Found b = planner::search(second, space);
  ASSERT_EQ(a.candidates.size(), b.candidates.size());
  for (std::size_t index = 0; index < a.candidates.size(); ++index) EXPECT_EQ(a.candidates[index].choice, b.candidates[index].choice);
}

TEST(PlannerSearch, KeepsToWhatIsPinned) {
  const Problem problem = small_problem({.layers = 6, .ranks = 8, .memory = 0.5});
  Estimator estimator(problem);
  const Found found =
      planner::search(estimator, planner::whole_space(problem, {.tensor = 2, .zero = 2, .recompute = Recompute::selective}, {}));
  ASSERT_FALSE(found.candidates.empty());
  for (const Candidate& candidate : found.candidates) {
    EXPECT_EQ(candidate.choice.strategy.tensor, 2);
    EXPECT_EQ(candidate.choice.strategy.recompute, Recompute::selective);
    EXPECT_EQ(candidate.choice.strategy.zero, 2);
  }
}

TEST(PlannerSearch, NeighboursOfTheBestAreNotBetterAndSayWhy) {
  const Problem problem = small_problem({.layers = 6, .ranks = 8, .per_node = 4, .memory = 0.06, .bandwidth = 4e9, .host = true});
  const Space space = planner::whole_space(problem, {}, {});
  Estimator estimator(problem);
  const Found found = planner::search(estimator, space);
  ASSERT_FALSE(found.candidates.empty());
  const std::vector<planner::Verdict> verdicts = planner::explain(estimator, space, found.candidates[0]);
  EXPECT_GE(verdicts.size(), 5u);
  for (const planner::Verdict& verdict : verdicts) {
    EXPECT_FALSE(verdict.reason.empty()) << verdict.what;
    if (!verdict.candidate.estimate.fits()) continue;
    EXPECT_GE(verdict.candidate.estimate.step_seconds, found.candidates[0].estimate.step_seconds * (1.0 - 1e-12)) << verdict.what;
  }
}

// With one micro-batch gradients are in shards, or in another tier, as soon as they are made, whichever way they would be kept: what fits
// with what is cheap made again, fits with the best choice too.
TEST(PlannerSearch, GradientsThatGoAtOnceTakeNoRoom) {
  for (const bool leave : {false, true}) {
    Problem problem = small_problem({.layers = 6, .batch = 8, .ranks = 8, .host = true});
    planner::Choice choice{.strategy = {}, .micro = 1};
    choice.strategy.data = 8;
    choice.strategy.zero = 3;
    choice.strategy.recompute = Recompute::selective;
    if (leave) choice.strategy.offload.optimizer = choice.strategy.offload.gradients = {.host = 1.0};
    Estimator roomy(problem);
    const planner::Estimate selective = roomy.evaluate(choice);
    choice.strategy.keep_grads = false;
    EXPECT_EQ(roomy.evaluate(choice).memory.device(), selective.memory.device());
    choice.strategy.keep_grads = true;

    problem.device = selective.memory.device() + base::Bytes{1 << 20};
    Estimator tight(problem);
    choice.strategy.recompute = Recompute::optimal;
    const planner::Estimate optimal = tight.evaluate(choice);
    EXPECT_TRUE(optimal.fits()) << optimal.reason;
    EXPECT_LE(optimal.step_seconds, selective.step_seconds * 1.02);  // memory is counted in slots
  }
}

// Where the simulator was asked, what it found to be moving without computing is named before anything is guessed.
TEST(PlannerSearch, WhatOnlyMovesDataIsSaid) {
  planner::Estimate best, slower;
  best.step_seconds = 1.0;
  slower.step_seconds = 1.05;
  const auto why = [&](double seconds, double exposed) {
    return planner::why_slower(slower, best, planner::MeasuredPair{.slower = {seconds, exposed}, .best = {1.0, 0.3}});
  };
  EXPECT_EQ(why(1.6, 0.9), "60.0% slower: only moves data for 0.9 s instead of 0.3");
  EXPECT_EQ(why(1.6, 0.4), "60.0% slower: its plan waits, which the estimate does not see");
  EXPECT_EQ(why(1.05, 0.3), "5.0% slower: its operators are slower in this shape");
  EXPECT_EQ(why(1.0, 0.3), "takes as long");
}

// What exceeds the device by a little is remembered, with the reason, where it would be faster than what fits.
TEST(PlannerSearch, NearMissesAreRemembered) {
  Problem problem = small_problem({.layers = 6, .ranks = 8, .memory = 0.5});
  const Space space = planner::whole_space(problem, {.recompute = Recompute::none}, {});
  Estimator roomy(problem);
  const Candidate best = planner::search(roomy, space).candidates.at(0);
  problem.device = base::Bytes{static_cast<std::int64_t>(static_cast<double>(best.estimate.memory.device().count) / 1.1)};
  Estimator tight(problem);
  const Found found = planner::search(tight, space, {.near_misses = true});
  const auto near = std::find_if(found.near.begin(), found.near.end(), [&](const Candidate& each) { return each.choice == best.choice; });
  ASSERT_NE(near, found.near.end());
  EXPECT_DOUBLE_EQ(near->estimate.step_seconds, best.estimate.step_seconds);
  EXPECT_NE(near->estimate.reason.find("more than there is"), std::string::npos) << near->estimate.reason;
  for (const Candidate& each : found.candidates) EXPECT_LE(each.estimate.memory.device(), problem.device);
  Estimator again(problem);
  EXPECT_TRUE(planner::search(again, space).near.empty());
}

// The space holds no strategy that training refuses, ZeRO groups with gradients elsewhere among them.
TEST(PlannerSpace, EveryChoiceIsLegal) {
  const Problem problem = small_problem({.layers = 4, .batch = 16, .ranks = 8, .per_node = 4, .memory = 0.1, .host = true});
  const Space space = planner::whole_space(problem, {}, {});
  std::int64_t seen = 0;
  std::int64_t grouped = 0;
  const auto check = [&](const planner::Choice& choice) {
    ++seen;
    grouped += choice.strategy.zero_group > 0 && choice.strategy.offload.gradients.anything() ? 1 : 0;
    const std::vector<std::string> reasons = strategy::reasons_against(choice.strategy, choice.micro_batches(problem));
    EXPECT_TRUE(reasons.empty()) << planner::describe(choice) << ": " << reasons.front();
  };
  space.visit_shapes(problem, [&](const planner::Choice& shape) {
    if (shape.micro > 2 || shape.strategy.recompute != Recompute::full || testing::Test::HasFailure()) return;
    space.visit_sharing(problem, shape, [&](const planner::Choice& choice) {
      check(choice);
      space.visit_tiers(problem, choice, check);
    });
  });
  EXPECT_GT(seen, 1000);
  EXPECT_GT(grouped, 0);  // with one micro-batch they may
}

TEST(PlannerSearch, ALimitIsSaid) {
  const Problem problem = small_problem({.layers = 6, .ranks = 8, .memory = 0.2});
  Estimator estimator(problem);
  int asked = 0;
  const Found found = planner::search(estimator, planner::whole_space(problem, {}, {}), {.stop = [&] { return ++asked > 3; }});
  EXPECT_FALSE(found.complete);
}

TEST(PlannerPins, ContradictionsNameBoth) {
  const Problem problem = small_problem({.layers = 6, .batch = 8, .ranks = 8, .per_node = 4});
  const auto only = [&](const Pins& pins) {
    const std::vector<std::string> found = planner::contradictions(problem, pins);
    EXPECT_EQ(found.size(), 1u) << testing::PrintToString(found);
    return found.empty() ? std::string() : found[0];
  };
  EXPECT_TRUE(planner::contradictions(problem, {.data = 2, .tensor = 2, .pipe = 2, .micro = 4}).empty());
  const std::vector<std::pair<Pins, std::vector<std::string>>> cases{
      {{.data = 4, .tensor = 4}, {"\"data\": 4", "\"tensor\": 4", "16"}},
      {{.data = 2, .tensor = 2, .pipe = 1}, {"\"data\": 2", "\"pipe\": 1", "4 ranks", "8"}},
      {{.data = 4, .micro = 4}, {"\"batch.micro\": 4", "\"data\": 4", "16 samples"}},
      {{.pipe = 4, .chunks = 3}, {"\"pipe\": 4", "\"chunks\": 3", "12 stages", "6 layers"}},
      {{.pipe = 1, .chunks = 2}, {"\"pipe\": 1", "\"chunks\": 2"}},
      {{.tensor = 1, .sequence_parallel = true}, {"\"tensor\": 1", "\"sequence_parallel\": true"}},
      {{.chunks = 1, .schedule = "interleaved"}, {"\"schedule\": \"interleaved\"", "\"chunks\": 1"}},
      {{.zero = 0, .zero_group = 2}, {"\"zero\": 0", "\"zero_group\": 2"}},
      {{.pipe = 2, .schedule = "zb-h1", .recompute = Recompute::optimal}, {"\"recompute\": \"optimal\"", "\"schedule\": \"zb-h1\""}},
      {{.optimizer = planner::Tier::device, .params = planner::Tier::host},
       {"\"offload.params\": \"host\"", "\"offload.optimizer\": \"none\""}}};
  for (const auto& [pins, parts] : cases) {
    const std::string text = only(pins);
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

}  // namespace
}  // namespace plimsoll::tests

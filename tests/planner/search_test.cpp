// The search against the evaluation of every choice, and its bounds against what is found exactly.
#include <gtest/gtest.h>

#include "planner/problems.h"

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
  space.visit_shapes(problem, [&](const Choice& shape) { space.visit_sharing(problem, shape, [&](const Choice&) { ++count; }); });
  return count;
}

void expect_optimum(const Problem& problem, const Space& space) {
  Estimator pruned(problem);
  Estimator brute(problem);
  const Found fast = planner::search(pruned, space);
  const Found all = planner::search(brute, space, {.prune = false, .most_pieces = std::int64_t{1} << 40});
  ASSERT_TRUE(all.complete);
  ASSERT_TRUE(fast.complete);
  ASSERT_EQ(fast.candidates.empty(), all.candidates.empty());
  if (all.candidates.empty()) {
    EXPECT_GT(fast.least_device, problem.device);
    return;
  }
  EXPECT_DOUBLE_EQ(fast.candidates[0].estimate.step_seconds, all.candidates[0].estimate.step_seconds)
      << planner::describe(fast.candidates[0].choice) << "\nbut brute force finds\n"
      << planner::describe(all.candidates[0].choice);
  EXPECT_LE(fast.progress.evaluated, all.progress.evaluated);
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
                           .host = layers == 5});
        }
      }
    }
  }
  return cases;
}

TEST(PlannerSearch, EqualsBruteForceOverTheWholeSpace) {
  for (const ProblemSizes& sizes : small_cases()) {
    SCOPED_TRACE(testing::Message() << sizes.ranks << " ranks, " << sizes.layers << " layers, memory " << sizes.memory << ", bandwidth "
                                    << sizes.bandwidth);
    const Problem problem = small_problem(sizes);
    const Space space = planner::whole_space(problem, {}, {});
    ASSERT_LE(choices_in(space, problem), 100'000);
    expect_optimum(problem, space);
  }
}

// Each question open alone and with each other one, the rest pinned.
TEST(PlannerSearch, EqualsBruteForceForEveryPairOfQuestions) {
  const Problem problem =
      small_problem({.layers = 6, .batch = 8, .ranks = 8, .per_node = 4, .memory = 0.08, .bandwidth = 4e9, .host = true});
  const Pins all{.data = 2,
                 .tensor = 2,
                 .pipe = 2,
                 .chunks = 1,
                 .zero = 1,
                 .zero_group = 0,
                 .micro = 1,
                 .keep_params = false,
                 .keep_grads = true,
                 .sequence_parallel = false,
                 .schedule = "1f1b",
                 .recompute = Recompute::full,
                 .partition = StagePartition::equal,
                 .host_optimizer = false};
  const std::vector<std::function<void(Pins&)>> open{[](Pins& pins) { pins.data = pins.tensor = pins.pipe = {}; },
                                                     [](Pins& pins) { pins.chunks = {}, pins.schedule = {}; },
                                                     [](Pins& pins) { pins.zero = {}; },
                                                     [](Pins& pins) { pins.zero = 3, pins.keep_params = pins.keep_grads = {}; },
                                                     [](Pins& pins) { pins.micro = {}; },
                                                     [](Pins& pins) { pins.sequence_parallel = {}; },
                                                     [](Pins& pins) { pins.recompute = {}; },
                                                     [](Pins& pins) { pins.partition = {}; },
                                                     [](Pins& pins) { pins.host_optimizer = {}; }};
  for (std::size_t a = 0; a < open.size(); ++a) {
    for (std::size_t b = a; b < open.size(); ++b) {
      SCOPED_TRACE(testing::Message() << "questions " << a << " and " << b);
      Pins pins = all;
      open[a](pins);
      open[b](pins);
      expect_optimum(problem, planner::whole_space(problem, pins, {}));
    }
  }
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
      space.visit_sharing(problem, shape, [&](const Choice& choice) {
        const planner::Bounds bounds = estimator.bounds(choice);
        const Estimate exact = estimator.evaluate(choice);
        ASSERT_LE(bounds.step_seconds, exact.step_seconds * (1.0 + 1e-12)) << planner::describe(choice);
        ASSERT_LE(of_shape.step_seconds, bounds.step_seconds * (1.0 + 1e-12)) << planner::describe(choice);
        ASSERT_LE(bounds.device, exact.memory.device()) << planner::describe(choice);
        ASSERT_LE(of_shape.device, bounds.device) << planner::describe(choice);
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
      {{.pipe = 4, .chunks = 2}, {"\"pipe\": 4", "\"chunks\": 2", "8 stages", "6 layers"}},
      {{.pipe = 1, .chunks = 2}, {"\"pipe\": 1", "\"chunks\": 2"}},
      {{.tensor = 1, .sequence_parallel = true}, {"\"tensor\": 1", "\"sequence_parallel\": true"}},
      {{.chunks = 1, .schedule = "interleaved"}, {"\"schedule\": \"interleaved\"", "\"chunks\": 1"}},
      {{.zero = 0, .zero_group = 2}, {"\"zero\": 0", "\"zero_group\": 2"}}};
  for (const auto& [pins, parts] : cases) {
    const std::string text = only(pins);
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

}  // namespace
}  // namespace plimsoll::tests

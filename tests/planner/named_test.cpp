// Each planner of the literature against its own brute force, on random chains of up to six layers and eight devices.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "planner/named/chain.h"
#include "planner/problems.h"

namespace plimsoll::tests {
namespace {

namespace named = planner::named;
using named::Answer;
using named::Chain;
using named::Layer;
using named::Stage;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : key_(base::random_key(seed, 3)) {}
  double between(double low, double high) {
    const base::RandomBlock block = base::philox({count_++, 0, 0, 0}, key_);
    return low + (high - low) * static_cast<double>(block[0]) / 4294967296.0;
  }
  std::int64_t of(std::initializer_list<std::int64_t> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(between(0.0, static_cast<double>(values.size()) - 1e-9)));
  }

 private:
  base::RandomKey key_;
  std::uint32_t count_ = 0;
};

Chain random_chain(std::uint64_t seed, std::int64_t most_layers, std::int64_t micro = 1) {
  Draw draw(seed);
  Chain chain{.tensor_degrees = {1, 2}, .layers = {{}, {}}};
  chain.devices = draw.of({1, 2, 4, 8});
  chain.devices_per_node = std::min<std::int64_t>(chain.devices, draw.of({2, 4}));
  if (chain.devices_per_node == 4) {
    chain.tensor_degrees.push_back(4);
    chain.layers.emplace_back();
  }
  if (chain.devices == 1) {
    chain.tensor_degrees = {1};
    chain.layers.resize(1);
  }
  chain.micro = micro;
  chain.micro_batches = 16 / micro;
  chain.inside = 1e9;
  chain.across = draw.between(0.5e8, 1e9);
  const auto layers = static_cast<std::int64_t>(draw.between(1.0, static_cast<double>(most_layers) + 0.999));
  std::int64_t whole = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const double seconds = draw.between(1e-3, 2e-2) * static_cast<double>(micro);
    const auto weights = static_cast<std::int64_t>(draw.between(1e5, 3e7));
    const auto kept = static_cast<std::int64_t>(draw.between(1e5, 1e7)) * micro;
    const auto output = static_cast<std::int64_t>(draw.between(1e4, 4e6)) * micro;
    for (std::size_t degree = 0; degree < chain.tensor_degrees.size(); ++degree) {
      const std::int64_t tensor = chain.tensor_degrees[degree];
      const double talk = tensor > 1 ? 0.2 * seconds : 0.0;
      chain.layers[degree].push_back({.seconds = seconds / static_cast<double>(tensor) + talk,
                                      .again = 0.3 * seconds / static_cast<double>(tensor),
                                      .weights = weights / tensor,
                                      .states = 4 * weights / tensor,
                                      .version = weights / tensor,
                                      .kept = kept / tensor,
                                      .kept_again = kept / tensor / 5,
                                      .output = output});
    }
    whole += 4 * weights + kept;
  }
  chain.device = base::Bytes{static_cast<std::int64_t>(static_cast<double>(whole) * draw.between(0.4, 3.0))};
  return chain;
}

void expect_cover(const Chain& chain, const std::vector<Stage>& stages) {
  std::size_t next = 0;
  for (const Stage& stage : stages) {
    EXPECT_EQ(stage.first, next);
    EXPECT_LT(stage.first, stage.last);
    next = stage.last;
  }
  EXPECT_EQ(next, chain.size());
  EXPECT_LT(named::batch_seconds(chain, stages), 1e6);
}

template <typename Plan, typename Brute>
void expect_optimum(const Plan& plan, const Brute& brute, std::int64_t most_layers, std::uint64_t count) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Chain chain = random_chain(seed, most_layers);
    const Answer ours = plan(chain);
    const Answer best = brute(chain);
    if (std::isinf(best.objective)) {
      EXPECT_TRUE(std::isinf(ours.objective));
      continue;
    }
    ++found;
    EXPECT_NEAR(ours.objective / best.objective, 1.0, 1e-9);
    expect_cover(chain, ours.stages);
  }
  EXPECT_GT(found, static_cast<int>(count) / 4) << "too few chains fit to say anything";
}

TEST(NamedPlanners, PipeDream) { expect_optimum(named::pipedream, named::brute_pipedream, 6, 60); }

TEST(NamedPlanners, Piper) { expect_optimum(named::piper, named::brute_piper, 5, 60); }

TEST(NamedPlanners, PiperNeverLosesByMoreDevices) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Chain chain = random_chain(seed, 5);
    double before = std::numeric_limits<double>::infinity();
    for (const std::int64_t devices : {1, 2, 4, 8}) {
      chain.devices = devices;
      chain.devices_per_node = 8;
      const double objective = named::piper(chain).objective;
      EXPECT_LE(objective, before * (1.0 + 1e-12));
      before = objective;
    }
  }
}

TEST(NamedPlanners, AlpaInter) { expect_optimum(named::alpa_inter, named::brute_alpa_inter, 6, 60); }

TEST(NamedPlanners, FlexFlowOnFewBlocks) {
  expect_optimum([](const Chain& chain) { return named::flexflow(chain); }, named::brute_flexflow, 4, 60);
}

TEST(NamedPlanners, TwoBufferedWeights) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::vector<Chain> chains;
    for (const std::int64_t micro : {1, 2, 4}) chains.push_back(random_chain(seed, 6, micro));
    const Answer ours = named::two_buffered(chains);
    const Answer best = named::brute_two_buffered(chains);
    if (std::isinf(best.objective)) {
      EXPECT_TRUE(std::isinf(ours.objective));
      continue;
    }
    ++found;
    EXPECT_DOUBLE_EQ(ours.objective, best.objective) << "seed " << seed;
    EXPECT_EQ(ours.micro, best.micro);
    expect_cover(chains[0], ours.stages);
  }
  EXPECT_GT(found, 15);
}

// By hand: two equal layers, two devices, weights too large to exchange - PipeDream cuts between them.
TEST(NamedPlanners, PipeDreamCutsWhereExchangeIsDear) {
  Chain chain{.tensor_degrees = {1}, .layers = {{{.seconds = 1.0, .weights = 10}, {.seconds = 1.0, .weights = 10}}}};
  chain.devices = 2;
  chain.devices_per_node = 2;
  chain.inside = 1.0;
  const Answer cut = named::pipedream(chain);
  EXPECT_EQ(cut.stages, (std::vector<Stage>{{.first = 0, .last = 1}, {.first = 1, .last = 2}}));
  EXPECT_DOUBLE_EQ(cut.objective, 1.0);
  chain.inside = 1000.0;
  chain.layers[0][0].output = 1'000'000;
  const Answer whole = named::pipedream(chain);
  EXPECT_EQ(whole.stages, (std::vector<Stage>{{.first = 0, .last = 2, .data = 2}}));
  EXPECT_DOUBLE_EQ(whole.objective, 1.0);
}

TEST(NamedPlanners, ACoarseChainHasTheSameSums) {
  const Chain fine = named::chain_of(small_problem({.layers = 11, .batch = 16, .ranks = 8, .per_node = 4, .memory = 5.0}), 1, 1e10, 1e9);
  const Chain coarse = named::coarse(fine, 4);
  ASSERT_EQ(coarse.size(), 4u);
  double a = 0.0;
  double b = 0.0;
  for (const Layer& layer : fine.at(1)) a += layer.seconds;
  for (const Layer& layer : coarse.at(1)) b += layer.seconds;
  EXPECT_NEAR(a, b, 1e-12);
  expect_cover(fine, named::refined(fine, coarse, named::alpa_inter(coarse).stages));
}

TEST(NamedPlanners, AChainOfAProblemHasItsPrices) {
  const planner::Problem problem = small_problem({.layers = 4, .batch = 16, .ranks = 8, .per_node = 4, .memory = 5.0});
  const Chain chain = named::chain_of(problem, 2, 1e10, 1e9);
  EXPECT_EQ(chain.tensor_degrees, (std::vector<std::int64_t>{1, 2, 4}));
  EXPECT_EQ(chain.micro_batches, 8);
  const planner::Prices prices = problem.prices({.tensor = 2, .micro = 2});
  double sum = 0.0;
  for (const Layer& layer : chain.at(2)) sum += layer.seconds;
  const auto work = [](const planner::BlockPrice& block) { return block.forward + block.backward_input + block.backward_weight; };
  EXPECT_NEAR(sum, 4.0 * work(prices.layer) + work(prices.embedding) + work(prices.head), 1e-12);
}

}  // namespace
}  // namespace plimsoll::tests

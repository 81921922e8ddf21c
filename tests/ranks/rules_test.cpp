// Update rules beside each other: whatever a layout shares out, offloads or tiles, each rule does what it does in one place. One of them is
// declared here, as code outside of src would.
#include <unistd.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "ops/optim/rules.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {
namespace {

// Adagrad: steps over the root of the sum of all squares so far.
struct Adagrad {
  static constexpr std::string_view kName = "adagrad_of_a_test";
  static constexpr std::string_view kAbout = "steps over the root of the sum of squares";
  static constexpr std::array kNumbers{ops::kEps};
  static constexpr std::array kStates{ops::RuleState{.name = "sum", .never_negative = true}};
  static constexpr int kFlops = 6;
  static constexpr double kWeightDecay = 0.0;
  static constexpr double kPeerLr = 1e-2;
  static constexpr std::array<std::string_view, 0> kDeepSpeed{};

  template <typename T>
  struct Step {
    T multiplier, eps, rate;
  };

  template <typename T>
  static Step<T> step(const ops::RuleInputs& in) {
    return {static_cast<T>(in.multiplier), static_cast<T>(in.numbers[0]), static_cast<T>(in.learning_rate)};
  }

  template <typename T>
  static void element(const Step<T>& s, T gradient, T& weight, T* state) {
    const T g = ops::times(gradient, s.multiplier);
    state[0] = ops::times_plus(g, g, state[0]);
    weight = ops::times_plus(-ops::over(g, ops::plus(ops::root(state[0]), s.eps)), s.rate, weight);
  }
};

constexpr ops::UpdateRule kOfThisTest = ops::row_of<Adagrad>();

std::vector<const ops::UpdateRule*> all_rules() {
  std::vector<const ops::UpdateRule*> rules{&kOfThisTest};
  for (const ops::UpdateRule& rule : ops::update_rules()) rules.push_back(&rule);
  return rules;
}

class Rules : public testing::TestWithParam<const ops::UpdateRule*> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("plimsoll_rules_" + std::to_string(getpid()) + "_" + std::string(GetParam()->name));
    std::filesystem::create_directories(folder_);
    task_.model = small_model(families::gpt2());
    task_.model.tied = false;
    task_.rule = GetParam();
    task_.samples = 4;
    task_.steps = 2;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Where {
    std::int64_t data = 1;
    std::int64_t tensor = 1;
    std::int64_t zero = 0;
    std::int64_t tile = 0;
    strategy::TierShare states = {};
    std::int64_t pipe = 1;
    std::int64_t micro = 1;
  };
  Layout layout(const Where& where) const {
    Layout layout;
    layout.micro = where.micro;
    layout.disk_folder = folder_.string();
    layout.strategy.data = where.data;
    layout.strategy.tensor = where.tensor;
    layout.strategy.pipe = where.pipe;
    layout.strategy.zero = where.zero;
    layout.strategy.tile = base::Bytes{where.tile};
    layout.strategy.offload.optimizer = where.states;
    return layout;
  }
  void expect_same_bits(const Layout& other, const Outcome& wanted) {
    const Outcome found = train(task_, other);
    EXPECT_EQ(found.losses, wanted.losses);
    EXPECT_TRUE(found.parameters == wanted.parameters);
  }

  std::filesystem::path folder_;
  Task task_;
};

TEST_P(Rules, GiveTheSameBitsInEveryTier) {
  const Outcome here = train(task_, layout({.micro = 2}));
  for (const strategy::TierShare share : {strategy::TierShare{1.0, 0.0}, {0.0, 1.0}, {0.5, 0.0}})
    expect_same_bits(layout({.states = share, .micro = 2}), here);
}

TEST_P(Rules, GiveTheSameBitsInShards) {
  const Outcome whole = train(task_, layout({.data = 2}));
  expect_same_bits(layout({.data = 2, .zero = 1}), whole);
  expect_same_bits(layout({.data = 2, .zero = 1, .states = {.host = 1.0}}), whole);
}

// Sums of other parts round otherwise, and what goes by a sign then differs: close in the loss, not in every weight.
TEST_P(Rules, TrainAlikeInEveryLayout) {
  const Outcome one = train(task_, layout({.micro = 2}));
  for (const Where& where : {Where{.data = 2, .zero = 3}, Where{.tensor = 2}, Where{.data = 2, .tensor = 2, .zero = 2},
                             Where{.tile = 7'000}, Where{.data = 2, .zero = 3, .tile = 7'000}}) {
    const Outcome other = train(task_, layout(where));
    ASSERT_EQ(other.losses.size(), one.losses.size());
    for (std::size_t step = 0; step < one.losses.size(); ++step) EXPECT_NEAR(other.losses[step], one.losses[step], 2e-3 * one.losses[step]);
  }
  EXPECT_NE(one.losses.front(), one.losses.back());
}

// Everything that cuts or moves a parameter at once, with states in two bytes.
TEST_P(Rules, TrainAlikeWithAllOfItAtOnce) {
  task_.precision = model::Precision::bf16;
  task_.moments = model::Moments::bf16;
  const Outcome one = train(task_, layout({.micro = 2}));
  for (const Where& where : {Where{.data = 2, .tensor = 2, .zero = 3, .tile = 3'500, .states = {.host = 1.0}},
                             Where{.data = 2, .tensor = 2, .zero = 2, .tile = 3'500, .states = {.disk = 1.0}},
                             Where{.data = 2, .zero = 1, .states = {.host = 0.5, .disk = 0.2}, .pipe = 2, .micro = 2}}) {
    const Outcome other = train(task_, layout(where));
    ASSERT_EQ(other.losses.size(), one.losses.size());
    for (std::size_t step = 0; step < one.losses.size(); ++step) EXPECT_NEAR(other.losses[step], one.losses[step], 1e-2 * one.losses[step]);
  }
}

// With the gradients of the step before, wherever the host updates.
TEST_P(Rules, GiveTheSameBitsAStepLate) {
  Layout late = layout({.states = {.host = 1.0}, .micro = 2});
  late.strategy.delayed_update = true;
  const Outcome host = train(task_, late);
  late.strategy.offload.optimizer = {.disk = 1.0};
  const Outcome disk = train(task_, late);
  EXPECT_EQ(disk.losses, host.losses);
  EXPECT_TRUE(disk.parameters == host.parameters);
  const Outcome prompt = train(task_, layout({.micro = 2}));
  EXPECT_NE(host.losses, prompt.losses);
}

INSTANTIATE_TEST_SUITE_P(All, Rules, testing::ValuesIn(all_rules()), [](const auto& each) { return std::string(each.param->name); });

}  // namespace
}  // namespace plimsoll::ranks

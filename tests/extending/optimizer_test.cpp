// An optimizer of one's own. `NormalizedMomentum` is all that is written for it; it then trains in shards, from the host's memory, in
// bf16 states, and goes on after a kill, as those in src/ops/optim do.
#include <sys/wait.h>

#include <cmath>
#include <csignal>

#include <gtest/gtest.h>

#include "extending/runs.h"
#include "ops/optim/rules.h"

namespace plimsoll::extending {
namespace {

// Momentum over a gradient that its own running magnitude divides:
//   s = decay s + (1 - decay) |g|;  m = beta m + g / (s + eps);  weight -= lr (m + weight_decay weight)
struct NormalizedMomentum {
  static constexpr std::string_view kName = "normalized_momentum";
  static constexpr std::string_view kAbout = "momentum over gradients divided by their running magnitude";
  static constexpr std::array kNumbers{
      ops::RuleNumber{.name = "beta", .about = "Decay rate of the momentum.", .usual = 0.9, .below_one = true},
      ops::RuleNumber{.name = "decay", .about = "Decay rate of the magnitude.", .usual = 0.99, .below_one = true}, ops::kEps};
  static constexpr std::array kStates{ops::RuleState{"m"}, ops::RuleState{.name = "s", .never_negative = true}};
  static constexpr int kFlops = 9;
  static constexpr double kWeightDecay = 0.01;
  static constexpr bool kDecaysApart = true;
  static constexpr double kPeerLr = 1e-3;
  static constexpr std::array<std::string_view, 0> kDeepSpeed{};

  template <typename T>
  struct Step {
    T multiplier, beta, decay, one_minus_decay, eps, rate, keep;
  };

  template <typename T>
  static Step<T> step(const ops::RuleInputs& in) {
    return {.multiplier = static_cast<T>(in.multiplier),
            .beta = static_cast<T>(in.numbers[0]),
            .decay = static_cast<T>(in.numbers[1]),
            .one_minus_decay = static_cast<T>(1.0 - in.numbers[1]),
            .eps = static_cast<T>(in.numbers[2]),
            .rate = static_cast<T>(in.learning_rate),
            .keep = static_cast<T>(1.0 - in.learning_rate * in.weight_decay)};
  }

  template <typename T>
  static void element(const Step<T>& s, T gradient, T& weight, T* state) {
    const T g = ops::times(gradient, s.multiplier);
    const T magnitude = g < T(0) ? -g : g;
    state[1] = ops::times_plus(state[1], s.decay, ops::times(magnitude, s.one_minus_decay));
    state[0] = ops::times_plus(state[0], s.beta, ops::over(g, ops::plus(state[1], s.eps)));
    weight = ops::times_plus(weight, s.keep, -ops::times(state[0], s.rate));
  }
};

constexpr ops::UpdateRule kMine = ops::row_of<NormalizedMomentum>();

// The least that a rule needs to say (docs/extending.md).
struct SignDescent {
  static constexpr std::string_view kName = "sign_descent";
  static constexpr std::string_view kAbout = "steps of one size";
  static constexpr std::array<ops::RuleNumber, 0> kNumbers{};
  static constexpr std::array<ops::RuleState, 0> kStates{};
  static constexpr int kFlops = 2;
  static constexpr double kWeightDecay = 0.0;
  static constexpr double kPeerLr = 1e-4;
  static constexpr std::array<std::string_view, 0> kDeepSpeed{};

  template <typename T>
  struct Step {
    T rate;
  };
  template <typename T>
  static Step<T> step(const ops::RuleInputs& in) {
    return {static_cast<T>(in.learning_rate)};
  }
  template <typename T>
  static void element(const Step<T>& s, T gradient, T& weight, T* /*state*/) {
    weight = ops::plus(weight, gradient < T(0) ? s.rate : -s.rate);
  }
};

constexpr ops::UpdateRule kLeast = ops::row_of<SignDescent>();

class OptimizerTest : public testing::Test {
 protected:
  std::vector<double> train(const std::string& out, const std::vector<std::string>& overrides, Losses losses = {}) {
    config::Run run = folder_.run(out, overrides);
    run.optimizer.rule = rule_;
    if (rule_ == &kMine) run.optimizer.numbers = {{"beta", 0.8}};
    train::run(run, losses);
    resumed_ = losses.resumed;
    return losses.losses;
  }

  Folder folder_;
  const ops::UpdateRule* rule_ = &kMine;
  bool resumed_ = false;
};

const std::vector<std::string> kShardsOnTheHost{"strategy.data=2", "strategy.zero=3", "strategy.offload.optimizer=host"};

// First of all: a process that has had threads is not copied whole by fork.
TEST_F(OptimizerTest, AKilledRunGoesOnWithTheSameBits) {
  const ::pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Losses killer;
    killer.after_step = [](std::int64_t step) {
      if (step == 5) ::raise(SIGKILL);
    };
    train("killed", kShardsOnTheHost, killer);
    ::_exit(1);  // it should not have come here
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

  const std::vector<double> rest = train("killed", kShardsOnTheHost);
  EXPECT_TRUE(resumed_);
  const std::vector<double> whole = train("whole", kShardsOnTheHost);
  ASSERT_EQ(whole.size(), 8u);
  ASSERT_LE(rest.size(), whole.size());
  ASSERT_GE(rest.size(), 3u);
  EXPECT_EQ(rest, std::vector<double>(whole.end() - std::ssize(rest), whole.end()));
}

TEST_F(OptimizerTest, TrainsAlikeWhereverItsStatesAre) {
  const std::vector<double> one = train("one", {});
  ASSERT_EQ(one.size(), 8u);
  EXPECT_LT(one.back(), one.front() - 0.5);
  EXPECT_EQ(train("host", {"strategy.offload.optimizer=host"}), one);
  const std::vector<double> shards = train("shards", kShardsOnTheHost);
  for (std::size_t step = 0; step < one.size(); ++step) EXPECT_NEAR(shards[step], one[step], 2e-5 * one[step]) << "step " << step + 1;
  const std::vector<double> tensor = train("tensor", {"strategy.tensor=2", "strategy.tile=2KiB"});
  for (std::size_t step = 0; step < one.size(); ++step) EXPECT_NEAR(tensor[step], one[step], 2e-5 * one[step]) << "step " << step + 1;
}

TEST_F(OptimizerTest, NeedsNeitherSettingsNorStates) {
  rule_ = &kLeast;
  const std::vector<double> one = train("one", {"optimizer.lr=0.003"});
  EXPECT_LT(one.back(), one.front() - 0.5);
  EXPECT_EQ(train("pipe", {"optimizer.lr=0.003", "strategy.pipe=2"}), one);
}

TEST_F(OptimizerTest, KeepsItsStatesInFewerBytes) {
  const std::vector<double> wide = train("wide", {});
  const std::vector<double> lean = train("lean", {"precision=bf16", "optimizer.moments=bf16", "optimizer.master=split"});
  ASSERT_EQ(lean.size(), wide.size());
  for (std::size_t step = 0; step < wide.size(); ++step) EXPECT_NEAR(lean[step], wide[step], 0.03 * wide[step]) << "step " << step + 1;
}

}  // namespace
}  // namespace plimsoll::extending

// Lion (Chen et al. 2023): steps of one size, by the sign of an average. With g = gradient * multiplier:
//   weight -= lr * (sign(beta1 m + (1-beta1) g) + weight_decay * weight);  m = beta2 m + (1-beta2) g
#pragma once

#include "ops/optim/rule.h"

namespace plimsoll::ops {

struct LionRule {
  static constexpr std::string_view kName = "lion";
  static constexpr std::string_view kAbout = "steps of one size by the sign of an average";
  static constexpr std::array kNumbers{
      RuleNumber{.name = "beta1", .about = "Share of the average in the direction of a step.", .usual = 0.9, .below_one = true},
      RuleNumber{.name = "beta2", .about = "Decay rate of the average.", .usual = 0.99, .below_one = true}};
  static constexpr std::array kStates{RuleState{"m"}};
  static constexpr int kFlops = 10;
  static constexpr double kWeightDecay = 0.1;
  static constexpr bool kDecaysApart = true;
  static constexpr double kPeerLr = 1e-4;
  static constexpr std::array<std::string_view, 4> kDeepSpeed{"Lion", "FusedLion", "CPULion", "DeepSpeedCPULion"};

  template <typename T>
  struct Step {
    T multiplier, beta1, one_minus_beta1, beta2, one_minus_beta2, keep, rate;
  };

  template <typename T>
  PLIMSOLL_HOST_DEVICE static Step<T> step(const RuleInputs& in) {
    const double beta1 = in.numbers[0], beta2 = in.numbers[1], lr = in.learning_rate;
    return {.multiplier = static_cast<T>(in.multiplier),
            .beta1 = static_cast<T>(beta1),
            .one_minus_beta1 = static_cast<T>(1.0 - beta1),
            .beta2 = static_cast<T>(beta2),
            .one_minus_beta2 = static_cast<T>(1.0 - beta2),
            .keep = static_cast<T>(1.0 - times(lr, in.weight_decay)),
            .rate = static_cast<T>(lr)};
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static void element(const Step<T>& s, T gradient, T& weight, T* state) {
    T& m = state[0];
    const T g = times(gradient, s.multiplier);
    const T direction = sign_of(times_plus(m, s.beta1, times(g, s.one_minus_beta1)));
    weight = times_plus(weight, s.keep, -times(direction, s.rate));
    m = times_plus(m, s.beta2, times(g, s.one_minus_beta2));
  }
};

}  // namespace plimsoll::ops

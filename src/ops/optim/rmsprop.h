// RMSProp as PyTorch has it, not centered: gradients over the root of an average of their squares, with momentum if wanted. With
// g = gradient * multiplier + weight_decay * weight:
//   v = alpha v + (1-alpha) g^2;  velocity = momentum velocity + g / (sqrt(v) + eps);  weight -= lr velocity
#pragma once

#include "ops/optim/rule.h"

namespace plimsoll::ops {

struct RmspropRule {
  static constexpr std::string_view kName = "rmsprop";
  static constexpr std::string_view kAbout = "gradients over the root of an average of their squares";
  static constexpr std::array kNumbers{
      RuleNumber{.name = "alpha", .about = "Decay rate of the average of squared gradients.", .usual = 0.99, .below_one = true}, kEps,
      RuleNumber{.name = "momentum", .about = "Decay rate of the average that steps follow.", .usual = 0.0, .below_one = true}};
  static constexpr std::array kStates{RuleState{"velocity"}, RuleState{.name = "v", .never_negative = true}};
  static constexpr int kFlops = 10;
  static constexpr double kWeightDecay = 0.0;
  static constexpr double kPeerLr = 1e-2;
  static constexpr std::array<std::string_view, 1> kDeepSpeed{"RMSprop"};

  template <typename T>
  struct Step {
    T multiplier, decay, alpha, one_minus_alpha, eps, momentum, rate;
  };

  template <typename T>
  PLIMSOLL_HOST_DEVICE static Step<T> step(const RuleInputs& in) {
    return {.multiplier = static_cast<T>(in.multiplier),
            .decay = static_cast<T>(in.weight_decay),
            .alpha = static_cast<T>(in.numbers[0]),
            .one_minus_alpha = static_cast<T>(1.0 - in.numbers[0]),
            .eps = static_cast<T>(in.numbers[1]),
            .momentum = static_cast<T>(in.numbers[2]),
            .rate = static_cast<T>(in.learning_rate)};
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static void element(const Step<T>& s, T gradient, T& weight, T* state) {
    T& velocity = state[0];
    T& v = state[1];
    const T g = times_plus(weight, s.decay, times(gradient, s.multiplier));
    v = times_plus(v, s.alpha, times(times(g, g), s.one_minus_alpha));
    velocity = times_plus(velocity, s.momentum, over(g, plus(root(v), s.eps)));
    weight = times_plus(-velocity, s.rate, weight);
  }
};

}  // namespace plimsoll::ops

// Gradient descent, plain (sgd) or with an average of gradients (momentum). With g = gradient * multiplier + weight_decay * weight:
//   sgd:       weight -= lr g
//   momentum:  velocity = momentum velocity + g;  weight -= lr velocity
#pragma once

#include "ops/optim/rule.h"

namespace plimsoll::ops {

template <typename T>
struct DescentStep {
  T multiplier, decay, momentum, rate;
};

struct SgdRule {
  static constexpr std::string_view kName = "sgd";
  static constexpr std::string_view kAbout = "gradient descent";
  static constexpr std::array<RuleNumber, 0> kNumbers{};
  static constexpr std::array<RuleState, 0> kStates{};
  static constexpr int kFlops = 4;
  static constexpr double kWeightDecay = 0.0;
  static constexpr double kPeerLr = 1e-3;
  static constexpr std::array<std::string_view, 1> kDeepSpeed{"SGD"};

  template <typename T>
  using Step = DescentStep<T>;

  template <typename T>
  PLIMSOLL_HOST_DEVICE static Step<T> step(const RuleInputs& in) {
    return {.multiplier = static_cast<T>(in.multiplier),
            .decay = static_cast<T>(in.weight_decay),
            .momentum = T(0),
            .rate = static_cast<T>(in.learning_rate)};
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static void element(const Step<T>& s, T gradient, T& weight, T*) {
    const T g = times_plus(weight, s.decay, times(gradient, s.multiplier));
    weight = times_plus(-g, s.rate, weight);
  }
};

struct MomentumRule {
  static constexpr std::string_view kName = "momentum";
  static constexpr std::string_view kAbout = "gradient descent with momentum";
  static constexpr std::array kNumbers{
      RuleNumber{.name = "momentum", .about = "Decay rate of the average that steps follow.", .usual = 0.9, .below_one = true}};
  static constexpr std::array kStates{RuleState{"velocity"}};
  static constexpr int kFlops = 4;
  static constexpr double kWeightDecay = 0.0;
  static constexpr double kPeerLr = 1e-3;
  static constexpr std::array<std::string_view, 0> kDeepSpeed{};  // its SGD where params.momentum is not 0

  template <typename T>
  using Step = DescentStep<T>;

  template <typename T>
  PLIMSOLL_HOST_DEVICE static Step<T> step(const RuleInputs& in) {
    Step<T> step = SgdRule::step<T>(in);
    step.momentum = static_cast<T>(in.numbers[0]);
    return step;
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static void element(const Step<T>& s, T gradient, T& weight, T* state) {
    T& velocity = state[0];
    velocity = times_plus(velocity, s.momentum, times_plus(weight, s.decay, times(gradient, s.multiplier)));
    weight = times_plus(-velocity, s.rate, weight);
  }
};

}  // namespace plimsoll::ops

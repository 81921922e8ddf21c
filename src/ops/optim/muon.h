// Muon: momentum whose matrix is made orthogonal, so that a step is as long in all directions. With g = gradient * multiplier:
//   m = momentum m + (1-momentum) g;  d = (1-momentum) g + momentum m
//   weight -= lr * (o + weight_decay * weight), where o is d orthogonalized, with a scale (ops/prelude.h).
// It is for the matrices between the embedding and the head; everything else follows AdamW.
#pragma once

#include "ops/optim/rule.h"

namespace plimsoll::ops {

struct MuonRule {
  static constexpr std::string_view kName = "muon";
  static constexpr std::string_view kAbout = "orthogonalized momentum for the matrices of layers, AdamW for the rest";
  static constexpr std::array kNumbers{
      RuleNumber{.name = "momentum", .about = "Decay rate of the average of gradients.", .usual = 0.95, .below_one = true},
      RuleNumber{.name = "match_rms",
                 .about = "Steps are this times sqrt(max(rows, columns)) long, which at 0.2 suits a learning rate for AdamW; 0: "
                          "sqrt(max(1, rows / columns)).",
                 .usual = 0.2},
      RuleNumber{.name = "ns_steps",
                 .about = "Steps of the iteration that makes a matrix orthogonal.",
                 .usual = 5.0,
                 .least = 1.0,
                 .whole = true}};
  static constexpr std::array kStates{RuleState{"m"}};
  static constexpr bool kMatrix = true;
  static constexpr std::string_view kOtherwise = "adamw";
  static constexpr int kFlops = 8;
  static constexpr double kWeightDecay = 0.1;
  static constexpr bool kDecaysApart = true;
  static constexpr double kPeerLr = 1e-3;
  static constexpr std::array<std::string_view, 0> kDeepSpeed{};

  template <typename T>
  struct Step {
    T multiplier, momentum, one_minus_momentum, keep, rate;
  };

  template <typename T>
  PLIMSOLL_HOST_DEVICE static Step<T> step(const RuleInputs& in) {
    return {.multiplier = static_cast<T>(in.multiplier),
            .momentum = static_cast<T>(in.numbers[0]),
            .one_minus_momentum = static_cast<T>(1.0 - in.numbers[0]),
            .keep = static_cast<T>(1.0 - times(in.learning_rate, in.weight_decay)),
            .rate = static_cast<T>(in.learning_rate)};
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static T average(const Step<T>& s, T g, T m) {
    return times_plus(m, s.momentum, times(g, s.one_minus_momentum));
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static T direction(const Step<T>& s, T gradient, T /*weight*/, const T* state) {
    const T g = times(gradient, s.multiplier);
    return times_plus(average(s, g, state[0]), s.momentum, times(g, s.one_minus_momentum));
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static void element(const Step<T>& s, T gradient, T& weight, T* state, T direction) {
    state[0] = average(s, times(gradient, s.multiplier), state[0]);
    weight = times_plus(-direction, s.rate, times(weight, s.keep));
  }
};

}  // namespace plimsoll::ops

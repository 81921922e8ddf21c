// Adam, with weight decay in the gradient (adam) or apart from it (adamw). With t the number of the update and
// g = gradient * multiplier (+ weight_decay * weight unless apart):
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2
//   weight -= lr * (m / (1-beta1^t) / (sqrt(v / (1-beta2^t)) + eps) + weight_decay * weight if apart)
#pragma once

#include "ops/optim/rule.h"

namespace plimsoll::ops {

template <bool kDecayApart>
struct AdamRule {
  static constexpr std::string_view kName = kDecayApart ? "adamw" : "adam";
  static constexpr std::string_view kAbout = kDecayApart ? "Adam with decoupled weight decay" : "Adam with weight decay in the gradient";
  static constexpr std::array kNumbers{kFirstBeta, kSecondBeta, kEps};
  static constexpr std::array kStates{RuleState{"m"}, RuleState{.name = "v", .never_negative = true}};
  static constexpr int kFlops = 15;
  static constexpr double kWeightDecay = kDecayApart ? 0.1 : 0.0;
  static constexpr bool kDecaysApart = kDecayApart;
  static constexpr double kPeerLr = 1e-3;
  // DeepSpeed's Adams decay weights apart from the gradient, unless adam_w_mode says otherwise.
  static constexpr auto kDeepSpeed = [] {
    if constexpr (kDecayApart) {
      return std::array<std::string_view, 7>{"Adam", "AdamW", "FusedAdam", "CPUAdam", "DeepSpeedCPUAdam", "OneBitAdam", "ZeroOneAdam"};
    } else {
      return std::array<std::string_view, 0>{};
    }
  }();

  //   g = gradient multiplier + weight coupled_decay;  weight = weight keep - rate m / (sqrt(v) spread + eps)
  template <typename T>
  struct Step {
    T multiplier, coupled_decay;
    T beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    T keep;    // 1 - lr weight_decay if apart
    T rate;    // lr / (1 - beta1^t)
    T spread;  // 1 / sqrt(1 - beta2^t)
  };

  template <typename T>
  PLIMSOLL_HOST_DEVICE static Step<T> step(const RuleInputs& in) {
    const double beta1 = in.numbers[0], beta2 = in.numbers[1], lr = in.learning_rate;
    return {.multiplier = static_cast<T>(in.multiplier),
            .coupled_decay = kDecayApart ? T(0) : static_cast<T>(in.weight_decay),
            .beta1 = static_cast<T>(beta1),
            .one_minus_beta1 = static_cast<T>(1.0 - beta1),
            .beta2 = static_cast<T>(beta2),
            .one_minus_beta2 = static_cast<T>(1.0 - beta2),
            .eps = static_cast<T>(in.numbers[2]),
            .keep = kDecayApart ? static_cast<T>(1.0 - times(lr, in.weight_decay)) : T(1),
            .rate = static_cast<T>(lr / (1.0 - power(beta1, in.update))),
            .spread = static_cast<T>(1.0 / std::sqrt(1.0 - power(beta2, in.update)))};
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static void element(const Step<T>& s, T gradient, T& weight, T* state) {
    T& m = state[0];
    T& v = state[1];
    const T g = times_plus(weight, s.coupled_decay, times(gradient, s.multiplier));
    m = times_plus(m, s.beta1, times(g, s.one_minus_beta1));
    v = times_plus(v, s.beta2, times(times(g, g), s.one_minus_beta2));
    weight = times_plus(weight, s.keep, -over(times(m, s.rate), times_plus(root(v), s.spread, s.eps)));
  }
};

}  // namespace plimsoll::ops

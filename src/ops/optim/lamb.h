// LAMB: Adam's step for each parameter, as long as the parameter is. With t the number of the update, g = gradient * multiplier and norms
// over the whole parameter:
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2
//   u = m / (1-beta1^t) / (sqrt(v / (1-beta2^t)) + eps) + weight_decay * weight
//   weight -= lr * |weight| / |u| * u, where the quotient is held between min_coeff and max_coeff, and is 1 where a norm is 0.
// Parameters of one dim have the quotient 1 (graph/passes/update.cpp).
#pragma once

#include "ops/optim/rule.h"

namespace plimsoll::ops {

struct LambRule {
  static constexpr std::string_view kName = "lamb";
  static constexpr std::string_view kAbout = "Adam's step, as long as each parameter is";
  static constexpr std::array kNumbers{
      kFirstBeta, kSecondBeta, RuleNumber{.name = "eps", .about = "Added to the denominator.", .usual = 1e-6, .least = 1e-37, .peer = 1e-8},
      RuleNumber{.name = "max_coeff", .about = "Most that a parameter's norm over its step's counts.", .usual = 10.0},
      RuleNumber{.name = "min_coeff", .about = "Least that a parameter's norm over its step's counts.", .usual = 0.01}};
  static constexpr std::array kStates{RuleState{"m"}, RuleState{.name = "v", .never_negative = true}};
  static constexpr std::size_t kSums = 2;  // of squares: of the parameter, of its step
  static constexpr int kFlops = 17;
  static constexpr double kWeightDecay = 0.01;
  static constexpr bool kDecaysApart = true;
  static constexpr double kPeerLr = 1e-3;
  static constexpr std::array<std::string_view, 3> kDeepSpeed{"Lamb", "FusedLamb", "OneBitLamb"};

  template <typename T>
  struct Step {
    T multiplier, beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    T start;   // 1 / (1 - beta1^t)
    T spread;  // 1 / sqrt(1 - beta2^t)
    T decay;
    T rate;
    double max_coeff, min_coeff, lr;
  };

  template <typename T>
  PLIMSOLL_HOST_DEVICE static Step<T> step(const RuleInputs& in) {
    const double beta1 = in.numbers[0], beta2 = in.numbers[1];
    return {.multiplier = static_cast<T>(in.multiplier),
            .beta1 = static_cast<T>(beta1),
            .one_minus_beta1 = static_cast<T>(1.0 - beta1),
            .beta2 = static_cast<T>(beta2),
            .one_minus_beta2 = static_cast<T>(1.0 - beta2),
            .eps = static_cast<T>(in.numbers[2]),
            .start = static_cast<T>(1.0 / (1.0 - power(beta1, in.update))),
            .spread = static_cast<T>(1.0 / std::sqrt(1.0 - power(beta2, in.update))),
            .decay = static_cast<T>(in.weight_decay),
            .rate = static_cast<T>(in.learning_rate),
            .max_coeff = in.numbers[3],
            .min_coeff = in.numbers[4],
            .lr = in.learning_rate};
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static void scale(Step<T>& s, const double* sums) {
    if (!(sums[0] > 0.0) || !(sums[1] > 0.0)) return;
    s.rate = static_cast<T>(times(s.lr, smaller(larger(std::sqrt(sums[0] / sums[1]), s.min_coeff), s.max_coeff)));
  }

  // u, with the averages as this step leaves them.
  template <typename T>
  PLIMSOLL_HOST_DEVICE static T stride(const Step<T>& s, T gradient, T weight, T* state) {
    T& m = state[0];
    T& v = state[1];
    const T g = times(gradient, s.multiplier);
    m = times_plus(m, s.beta1, times(g, s.one_minus_beta1));
    v = times_plus(v, s.beta2, times(times(g, g), s.one_minus_beta2));
    return times_plus(weight, s.decay, over(times(m, s.start), times_plus(root(v), s.spread, s.eps)));
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static void summands(const Step<T>& s, T gradient, T weight, T* state, T* terms) {
    const T u = stride(s, gradient, weight, state);
    terms[0] = times(weight, weight);
    terms[1] = times(u, u);
  }

  template <typename T>
  PLIMSOLL_HOST_DEVICE static void element(const Step<T>& s, T gradient, T& weight, T* state) {
    weight = times_plus(-stride(s, gradient, weight, state), s.rate, weight);
  }
};

}  // namespace plimsoll::ops

// The numbers of an Adam step that are the same for all elements, worked out in double and rounded once, for host and device alike: with
// them both update a parameter to the same bits, so that state may lie and be updated wherever there is room.
//
// Powers are by squaring, not by the library's pow, of which every library has its own. Nothing here may be contracted to a fused
// multiply-add: the device is told so, and builds for the host have none at this place.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"

namespace plimsoll::ops {

struct AdamConstants {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double weight_decay = 0.0;
  bool decoupled = true;
};

// No initial values: a block of device threads shares one.
//   g = gradient multiplier + weight coupled_decay;  weight = weight keep - rate m / (sqrt(v) spread + eps)
struct AdamStep {
  float multiplier;
  float coupled_decay;
  float keep;    // 1 - lr weight_decay if decoupled
  float rate;    // lr / (1 - beta1^t)
  float spread;  // 1 / sqrt(1 - beta2^t)
};

// a * b, rounded.
PLIMSOLL_HOST_DEVICE inline double rounded_product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

PLIMSOLL_HOST_DEVICE inline double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = rounded_product(result, base);
    base = rounded_product(base, base);
  }
  return result;
}

// `update`: Adam's t, from 1.
PLIMSOLL_HOST_DEVICE inline AdamStep adam_step(const AdamConstants& constants, float learning_rate, float multiplier, std::int64_t update) {
  const double lr = learning_rate;
  return {.multiplier = multiplier,
          .coupled_decay = constants.decoupled ? 0.0f : static_cast<float>(constants.weight_decay),
          .keep = constants.decoupled ? static_cast<float>(1.0 - rounded_product(lr, constants.weight_decay)) : 1.0f,
          .rate = static_cast<float>(lr / (1.0 - power(constants.beta1, update))),
          .spread = static_cast<float>(1.0 / std::sqrt(1.0 - power(constants.beta2, update)))};
}

}  // namespace plimsoll::ops

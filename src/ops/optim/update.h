// Updates of parameters.
//
// Updates work in f32. A weight or state that is stored in bf16 is widened before and rounded at random after, up or down with the odds
// that make its mean the unrounded value; `split` gives a bf16 weight the lower half of its f32 bits (ops/forms).
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (scalars, gradient, weight, m, v, [low u16], [copy]) -> (weight, m, v, [low], [copy]), in place. With t = updates + 1 and
// g = gradient * gradient_multiplier (+ weight_decay * weight unless decoupled):
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2
//   weight -= lr * (m / (1-beta1^t) / (sqrt(v / (1-beta2^t)) + eps) + weight_decay * weight if decoupled)
// copy is the weight in the element type the model computes with. Nothing is written when scalars.skip.
struct AdamUpdate {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = true;
  bool copy = false;
  bool split = false;
  PLIMSOLL_OP("adam_update") {
    visit("beta1", self.beta1);
    visit("beta2", self.beta2);
    visit("eps", self.eps);
    visit("weight_decay", self.weight_decay);
    visit("decoupled", self.decoupled);
    visit("copy", self.copy);
    visit("split", self.split);
  }
  bool operator==(const AdamUpdate&) const = default;
};

// (scalars, gradient, weight, [velocity], [copy]) -> (weight, [velocity], [copy]), in place. With
// g = gradient * gradient_multiplier + weight_decay * weight: momentum != 0: velocity = momentum velocity + g,
// weight -= lr velocity; else weight -= lr g.
struct SgdUpdate {
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool copy = false;
  PLIMSOLL_OP("sgd_update") {
    visit("momentum", self.momentum);
    visit("weight_decay", self.weight_decay);
    visit("copy", self.copy);
  }
  bool operator==(const SgdUpdate&) const = default;
};

}  // namespace plimsoll::ops

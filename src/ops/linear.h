// Linear layers and their gradients.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (x (.., K), w (N, K), [bias (N)]) -> y (.., N); with an activation -> (y, pre), y = activation(pre).
struct Linear {
  bool bias = false;
  ActivationKind activation = ActivationKind::none;
  PLIMSOLL_OP("linear") {
    visit("bias", self.bias);
    visit("activation", self.activation);
  }
  bool operator==(const Linear&) const = default;
};

// (dy (.., N), w (N, K), [pre (.., K)]) -> dx (.., K); with an activation, times activation'(pre): the gradient before it.
struct LinearGradInput {
  ActivationKind activation = ActivationKind::none;
  PLIMSOLL_OP("linear_grad_input") { visit("activation", self.activation); }
  bool operator==(const LinearGradInput&) const = default;
};

// (dy (.., N), x (.., K)) -> dw (N, K).
struct LinearGradWeight {
  base::DType dtype = base::DType::f32;
  bool accumulate = false;
  PLIMSOLL_OP("linear_grad_weight") {
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const LinearGradWeight&) const = default;
};

// (dy (.., N)) -> db (N).
struct BiasGrad {
  base::DType dtype = base::DType::f32;
  bool accumulate = false;
  PLIMSOLL_OP("bias_grad") {
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const BiasGrad&) const = default;
};

// (b (N)) -> (shape (.., N)), every row b: the adjoint of bias_grad.
struct RepeatRows {
  base::Shape shape{1};
  base::DType dtype = base::DType::f32;
  PLIMSOLL_OP("repeat_rows") {
    visit("shape", self.shape);
    visit("dtype", self.dtype);
  }
  bool operator==(const RepeatRows&) const = default;
};

}  // namespace plimsoll::ops

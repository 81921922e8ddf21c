// Activations and gates.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// (x) -> activation(x).
struct Activation {
  ActivationKind kind = ActivationKind::gelu_tanh;
  PLIMSOLL_OP("activation") { visit("kind", self.kind); }
  bool operator==(const Activation&) const = default;
};

// (dy, x) -> dy * activation'(x).
struct ActivationGrad {
  ActivationKind kind = ActivationKind::gelu_tanh;
  PLIMSOLL_OP("activation_grad") { visit("kind", self.kind); }
  bool operator==(const ActivationGrad&) const = default;
};

// (x (.., 2F)), columns alternating gate and up -> activation(gate) * up (.., F). Alternating, so that any even split
// of the columns keeps pairs together.
struct Gate {
  ActivationKind kind = ActivationKind::silu;
  PLIMSOLL_OP("gate") { visit("kind", self.kind); }
  bool operator==(const Gate&) const = default;
};

// (dy (.., F), x (.., 2F)) -> dx (.., 2F).
struct GateGrad {
  ActivationKind kind = ActivationKind::silu;
  PLIMSOLL_OP("gate_grad") { visit("kind", self.kind); }
  bool operator==(const GateGrad&) const = default;
};

// The adjoint of activation_grad: (gradient of its dx, dy, x) -> (ddy, dx).
struct ActivationGradGrad {
  ActivationKind kind = ActivationKind::gelu_tanh;
  PLIMSOLL_OP("activation_grad_grad") { visit("kind", self.kind); }
  bool operator==(const ActivationGradGrad&) const = default;
};

// The adjoint of gate_grad: (gradient of its dx (.., 2F), dy (.., F), x (.., 2F)) -> (ddy (.., F), dx (.., 2F)).
struct GateGradGrad {
  ActivationKind kind = ActivationKind::silu;
  PLIMSOLL_OP("gate_grad_grad") { visit("kind", self.kind); }
  bool operator==(const GateGradGrad&) const = default;
};

}  // namespace plimsoll::ops

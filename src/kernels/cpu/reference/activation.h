// The activation functions and their derivatives, shared by the operators that apply them.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::kernels::cpu::reference {

double activation(ops::ActivationKind kind, double x);
double activation_slope(ops::ActivationKind kind, double x);

}  // namespace plimsoll::kernels::cpu::reference

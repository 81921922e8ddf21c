// The activation functions and their first two derivatives, shared by the operators that apply them.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::kernels::cpu::reference {

double activation(ops::ActivationKind kind, double x);
double activation_slope(ops::ActivationKind kind, double x);
double activation_curve(ops::ActivationKind kind, double x);  // the second derivative

}  // namespace plimsoll::kernels::cpu::reference

// Between memory in any element type and doubles.
#pragma once

#include "base/dtype.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/reference/tensor.h"

namespace plimsoll::kernels::cpu::reference {

// The nearest value of the element type (ties to even; beyond its range infinity, or NaN where it has none).
double rounded(double value, base::DType dtype);

RefTensor load(const Tensor& from);
void store(const RefTensor& values, const Tensor& to);

}  // namespace plimsoll::kernels::cpu::reference

// Between memory in any element type and doubles.
#pragma once

#include "base/dtype.h"
#include "base/shape.h"
#include "kernels/cpu/reference/tensor.h"

namespace plimsoll::kernels::cpu::reference {

// The nearest value of the element type (ties to even; beyond its range infinity, or NaN where it has none).
double rounded(double value, base::DType dtype);

RefTensor load(const void* from, const base::TensorType& type);
void store(const RefTensor& values, void* to, const base::TensorType& type);

// Any operand or result. Blocks of scalars and of sums travel as bytes; nothing else in a graph is of their sizes, and an operator that
// reads one as numbers stops at the first access.
RefValue load_value(const void* from, const base::TensorType& type);
void store_value(const RefValue& value, void* to, const base::TensorType& type);

}  // namespace plimsoll::kernels::cpu::reference

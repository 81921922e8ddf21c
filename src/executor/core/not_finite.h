// Looking for numbers that are not finite.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "base/shape.h"

namespace plimsoll::executor {

// Whether a tensor has neither NaN nor positive infinity; types that have none always do. Negative infinity is what masks and the
// logarithms of empty sums are made of.
bool all_finite(const std::byte* data, const base::TensorType& type);

}  // namespace plimsoll::executor

// Types of tensors that have room for more rows than hold anything.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/shape.h"

namespace plimsoll::ops {

// The first dims make `bound` rows.
inline bool has_rows(const base::TensorType& type, std::int64_t bound) {
  std::int64_t product = 1;
  for (int dim = 0; dim < type.shape.rank() && product != bound; ++dim) product *= type.shape[dim];
  return product == bound;
}

// The type with `rows` rows, where its first dims are `bound` of them.
inline base::TensorType with_rows(const base::TensorType& type, std::int64_t bound, std::int64_t rows) {
  std::int64_t product = 1;
  int dims = 0;
  while (product != bound && dims < type.shape.rank()) product *= type.shape[dims++];
  PLIMSOLL_CHECK(product == bound, "{} does not have {} rows", base::to_string(type), bound);
  std::array<std::int64_t, base::Shape::kMaxDims> extents{rows};
  int rank = 1;
  for (; dims < type.shape.rank(); ++dims) extents[static_cast<std::size_t>(rank++)] = type.shape[dims];
  return {type.dtype, base::Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(rank)))};
}

// How many rows prices count with.
inline std::int64_t expected_rows(std::int64_t bound, double share) {
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(bound) * share));
}

}  // namespace plimsoll::ops

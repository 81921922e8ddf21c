#include "base/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace plimsoll::base {

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  PLIMSOLL_CHECK(dims.size() <= kMaxDims, "a tensor of {} dims; at most {}", dims.size(), kMaxDims);
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    PLIMSOLL_CHECK(dims[dim] >= 0, "extent {} of dim {}", dims[dim], dim);
    dims_[dim] = dims[dim];
  }
}

std::size_t Shape::checked(int dim) const {
  const int index = dim < 0 ? dim + rank_ : dim;
  PLIMSOLL_CHECK(index >= 0 && index < rank_, "dim {} of {}", dim, to_string(*this));
  return static_cast<std::size_t>(index);
}

std::int64_t Shape::elements() const {
  std::int64_t count = 1;
  for (std::int64_t extent : dims()) count *= extent;
  return count;
}

std::int64_t Shape::rows() const {
  std::int64_t count = 1;
  for (int dim = 0; dim + 1 < rank_; ++dim) count *= dims_[static_cast<std::size_t>(dim)];
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.dims(), ", ")); }

std::string to_string(const TensorType& type) { return fmt::format("{}{}", name_of(type.dtype), to_string(type.shape)); }

}  // namespace plimsoll::base

// The extents of a tensor, row-major, at most kMaxDims of them, stored in place.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/dtype.h"

namespace plimsoll::base {

class Shape {
 public:
  static constexpr int kMaxDims = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  // Negative dims count from the end, as in shape[-1].
  std::int64_t operator[](int dim) const { return dims_[checked(dim)]; }
  void set(int dim, std::int64_t extent) { dims_[checked(dim)] = extent; }
  std::int64_t elements() const;
  // The product of all extents but the last: the rows of the tensor seen as a matrix.
  std::int64_t rows() const;
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }

  bool operator==(const Shape&) const = default;

 private:
  std::size_t checked(int dim) const;
  std::array<std::int64_t, kMaxDims> dims_{};
  int rank_ = 0;
};

std::string to_string(const Shape& shape);

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  std::int64_t bytes() const { return shape.elements() * size_of(dtype); }
  bool operator==(const TensorType&) const = default;
};

std::string to_string(const TensorType& type);  // "bf16[4, 256, 768]"

}  // namespace plimsoll::base

// What reference code computes on: tensors of doubles (every element type, integers too, is exact in one) and the step
// scalars as they are. Row-major and plain, because the reference must be obviously right before anything else.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/shape.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu::reference {

struct RefTensor {
  base::Shape shape;
  std::vector<double> values;

  RefTensor() = default;
  explicit RefTensor(const base::Shape& zeros) : shape(zeros), values(static_cast<std::size_t>(zeros.elements()), 0.0) {}
  RefTensor(const base::Shape& of, std::vector<double> with) : shape(of), values(std::move(with)) {
    PLIMSOLL_CHECK(shape.elements() == static_cast<std::int64_t>(values.size()), "{} values for {}", values.size(), to_string(shape));
  }

  std::int64_t elements() const { return static_cast<std::int64_t>(values.size()); }
  // The tensor as a matrix: all dims but the last are rows.
  std::int64_t rows() const { return shape.rows(); }
  std::int64_t columns() const { return shape[-1]; }

  double& operator[](std::int64_t element) { return values[static_cast<std::size_t>(element)]; }
  double operator[](std::int64_t element) const { return values[static_cast<std::size_t>(element)]; }
  double& at(std::int64_t row, std::int64_t column) { return (*this)[row * columns() + column]; }
  double at(std::int64_t row, std::int64_t column) const { return (*this)[row * columns() + column]; }
};

// An operand or a result.
using RefValue = std::variant<RefTensor, ops::StepScalars, ops::ParameterSums>;
using Operands = std::span<const RefValue>;
using Results = std::vector<RefValue>;

inline const RefTensor& tensor(const RefValue& value) { return std::get<RefTensor>(value); }
inline const ops::StepScalars& scalars(const RefValue& value) { return std::get<ops::StepScalars>(value); }
inline const ops::ParameterSums& sums(const RefValue& value) { return std::get<ops::ParameterSums>(value); }
inline std::int64_t integer(double value) { return static_cast<std::int64_t>(value); }

// `shape` with another last dim.
inline base::Shape with_last(base::Shape shape, std::int64_t extent) {
  shape.set(-1, extent);
  return shape;
}

// The operands in order, one after the other: optional ones make positions depend on attributes.
class Reader {
 public:
  explicit Reader(Operands operands) : operands_(operands) {}
  const RefTensor& next_tensor() { return tensor(next()); }
  const ops::StepScalars& next_scalars() { return scalars(next()); }

 private:
  const RefValue& next() {
    PLIMSOLL_CHECK(position_ < operands_.size(), "the operator wants more than {} operands", operands_.size());
    return operands_[position_++];
  }
  Operands operands_;
  std::size_t position_ = 0;
};

// The `accumulate` form: what is there already is added to.
inline void add_to(RefTensor& gradient, const RefTensor& present) {
  for (std::int64_t e = 0; e < gradient.elements(); ++e) gradient[e] += present[e];
}

}  // namespace plimsoll::kernels::cpu::reference

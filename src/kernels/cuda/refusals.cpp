#include "kernels/cuda/refusals.h"

#include <fmt/format.h>

namespace plimsoll::kernels::cuda {

namespace {

bool is_element(base::DType dtype) { return dtype == base::DType::f32 || dtype == base::DType::bf16 || dtype == base::DType::f16; }

}  // namespace

std::optional<std::string> refuse_other_floats(const ops::KernelQuery& query) {
  for (const ops::Types types : {query.inputs, query.outputs}) {
    for (const base::TensorType& type : types) {
      if (base::is_float(type.dtype) && !is_element(type.dtype)) return fmt::format("{} is not f32, bf16 or f16", base::to_string(type));
    }
  }
  return std::nullopt;
}

std::optional<std::string> refuse_mixed_rows(const ops::KernelQuery& query) {
  if (const std::optional<std::string> other = refuse_other_floats(query)) return other;
  const base::TensorType& first = query.inputs[0];
  for (const ops::Types types : {query.inputs, query.outputs}) {
    for (const base::TensorType& type : types) {
      if (type.shape == first.shape && type.dtype != first.dtype) {
        return fmt::format("{} and {} are not of one element type", base::to_string(first), base::to_string(type));
      }
    }
  }
  return std::nullopt;
}

}  // namespace plimsoll::kernels::cuda

// Sums and conversions.
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

std::vector<TensorType> infer_add(const Op& op, Types inputs) {
  expect(inputs.size() == 2 && inputs[0] == inputs[1], op, inputs, "two operands of one type");
  return {inputs[0]};
}

std::vector<ValueId> add_adjoint(const AdjointSite& site, AdjointBuilder&) { return {site.output_grads[0], site.output_grads[0]}; }

std::vector<TensorType> infer_cast(const Op& op, Types inputs) {
  expect(inputs.size() == 1 && base::is_float(inputs[0].dtype), op, inputs, "one operand of a float type");
  return {{std::get<Cast>(op).dtype, inputs[0].shape}};
}

std::vector<ValueId> cast_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  return build.emit(Cast{.dtype = build.type(site.inputs[0]).dtype}, {site.output_grads[0]});
}

}  // namespace

Definition define(const Add&) {
  return {.infer = infer_add, .work = elementwise_work<1>, .adjoint = add_adjoint, .aliases = may_overwrite_first, .place = place_alike<1>};
}

Definition define(const Cast&) {
  return {.infer = infer_cast, .work = elementwise_work<0>, .adjoint = cast_adjoint, .place = place_alike<1>};
}

}  // namespace plimsoll::ops

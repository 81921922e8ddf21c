// Sums, conversions and columns.
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

std::vector<TensorType> infer_add(const Op& op, Types inputs) {
  expect(inputs.size() == 2 && inputs[0] == inputs[1], op, inputs, "two operands of one type");
  return {inputs[0]};
}

std::vector<ValueId> add_adjoint(const AdjointSite& site, AdjointBuilder&) { return {site.output_grads[0], site.output_grads[0]}; }

std::optional<Inverse> inverse_add(const Op&, std::size_t input, Types) {
  return Inverse{.op = Subtract{}, .inputs = {{.output = true}, {.index = input == 0 ? 1 : 0}}};
}

std::vector<TensorType> infer_cast(const Op& op, Types inputs) {
  expect(inputs.size() == 1 && base::is_float(inputs[0].dtype), op, inputs, "one operand of a float type");
  return {{std::get<Cast>(op).dtype, inputs[0].shape}};
}

std::vector<ValueId> cast_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  return build.emit(Cast{.dtype = build.type(site.inputs[0]).dtype}, {site.output_grads[0]});
}

// What is widened to f32.
std::optional<Inverse> inverse_cast(const Op& op, std::size_t, Types inputs) {
  if (std::get<Cast>(op).dtype != DType::f32) return std::nullopt;
  return Inverse{.op = Cast{.dtype = inputs[0].dtype}, .inputs = {{.output = true}}, .exact = true};
}

std::vector<TensorType> infer_take_columns(const Op& op, Types inputs) {
  const auto& take = std::get<TakeColumns>(op);
  expect(inputs.size() == 1 && inputs[0].shape.rank() >= 1 && take.first >= 0 && take.count > 0 &&
             take.first <= inputs[0].shape[-1] - take.count,
         op, inputs, "one operand that has these columns");
  TensorType result = inputs[0];
  result.shape.set(-1, take.count);
  return {result};
}

std::vector<TensorType> infer_put_columns(const Op& op, Types inputs) {
  const auto& put = std::get<PutColumns>(op);
  expect(inputs.size() == (put.into ? 2u : 1u) && inputs[0].shape.rank() >= 1 && put.first >= 0 &&
             put.first <= put.columns - inputs[0].shape[-1],
         op, inputs, "columns that the result has, and with `into` what they are put into");
  TensorType result = inputs[0];
  result.shape.set(-1, put.columns);
  if (put.into) expect(inputs[1] == result, op, inputs, "a target of the result's type");
  return {result};
}

std::optional<Inverse> inverse_put_columns(const Op& op, std::size_t input, Types inputs) {
  if (input != 0) return std::nullopt;
  const TakeColumns take{.first = std::get<PutColumns>(op).first, .count = inputs[0].shape[-1]};
  return Inverse{.op = take, .inputs = {{.output = true}}, .exact = true};
}

// Only the columns themselves move.
Work put_columns_work(const Op&, Types inputs, Types) { return {0.0, 2.0 * static_cast<double>(inputs[0].bytes())}; }

Work take_columns_work(const Op&, Types, Types outputs) { return {0.0, 2.0 * static_cast<double>(outputs[0].bytes())}; }

std::vector<Alias> put_columns_aliases(const Op& op) {
  if (!std::get<PutColumns>(op).into) return {};
  return {{.output = 0, .input = 1, .required = true}};
}

}  // namespace

Definition define(const TakeColumns&) {
  return {.infer = infer_take_columns, .work = take_columns_work, .no_adjoint = kMadeByLowering, .live_rows = by_rows<1>};
}

Definition define(const PutColumns&) {
  return {.infer = infer_put_columns,
          .work = put_columns_work,
          .no_adjoint = kMadeByLowering,
          .aliases = put_columns_aliases,
          .inverse = inverse_put_columns,
          .live_rows = by_rows<1>};
}

Definition define(const Add&) {
  return {.infer = infer_add,
          .work = elementwise_work<1>,
          .adjoint = add_adjoint,
          .aliases = may_overwrite_first,
          .inverse = inverse_add,
          .place = place_alike<1>,
          .elementwise = true,
          .live_rows = by_rows<1>};
}

Definition define(const Cast&) {
  return {.infer = infer_cast,
          .work = elementwise_work<0>,
          .adjoint = cast_adjoint,
          .inverse = inverse_cast,
          .place = place_alike<1>,
          .elementwise = true,
          .live_rows = by_rows<1>};
}

}  // namespace plimsoll::ops

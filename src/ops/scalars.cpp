// The operators on the block of step scalars: sums, the verdict before an update, and what is counted after it.
#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

std::vector<TensorType> infer_scalars(const Op& op, Types inputs) {
  expect(inputs.size() == 1 && inputs[0] == step_scalars_type(), op, inputs, "scalars");
  return {inputs[0]};
}

std::vector<TensorType> infer_sum(const Op& op, Types inputs) {
  expect(inputs.size() == 2 && inputs[0] == step_scalars_type() && base::is_float(inputs[1].dtype), op, inputs,
         "scalars and a float tensor");
  return {inputs[0]};
}

std::vector<TensorType> infer_merge(const Op& op, Types inputs) {
  const std::int64_t members = std::get<MergeScalars>(op).members;
  expect(inputs.size() == 2 && inputs[0] == step_scalars_type() && inputs[1].bytes() == members * inputs[0].bytes(), op, inputs,
         "scalars and those of every member");
  return {inputs[0]};
}

Work scalar_work(const Op&, Types inputs, Types) { return {0.0, static_cast<double>(inputs[0].bytes())}; }

Work sum_work(const Op&, Types inputs, Types) {
  return {2.0 * static_cast<double>(inputs[1].shape.elements()), static_cast<double>(inputs[1].bytes())};
}

std::vector<Alias> overwrites_scalars(const Op&) { return {{.output = 0, .input = 0, .required = true}}; }

constexpr Definition kScalarDefinition{
    .infer = infer_scalars, .work = scalar_work, .no_adjoint = kOfScalars, .aliases = overwrites_scalars};
constexpr Definition sum_into(Sum sum) {
  return {
      .infer = infer_sum, .work = sum_work, .no_adjoint = kOfScalars, .aliases = overwrites_scalars, .sums = sum, .live_rows = by_rows<0>};
}

}  // namespace

Definition define(const BeginStep&) { return kScalarDefinition; }
Definition define(const SumLoss&) { return sum_into(Sum::losses); }
Definition define(const SquaredNorm&) { return sum_into(Sum::squares); }
Definition define(const PrepareUpdate&) { return kScalarDefinition; }
Definition define(const FinishStep&) { return kScalarDefinition; }
Definition define(const CheckRows&) {
  return {.infer =
              [](const Op& op, Types inputs) {
                const bool fits = inputs.size() == 2 && inputs[0] == step_scalars_type() && inputs[1] == TensorType{DType::i32, Shape{1}};
                expect(fits, op, inputs, "scalars and an i32 count");
                return std::vector<TensorType>{inputs[0]};
              },
          .work = scalar_work,
          .no_adjoint = kOfScalars,
          .aliases = overwrites_scalars};
}
Definition define(const FreshScalars&) {
  return {.infer =
              [](const Op& op, Types inputs) {
                expect(inputs.empty(), op, inputs, "no operand");
                return std::vector<TensorType>{step_scalars_type()};
              },
          .work = [](const Op&, Types, Types outputs) { return Work{0.0, static_cast<double>(outputs[0].bytes())}; },
          .no_adjoint = kOfScalars,
          .begins_scalars = true};
}
Definition define(const MergeScalars&) {
  return {.infer = infer_merge, .work = scalar_work, .no_adjoint = kOfScalars, .aliases = overwrites_scalars};
}

}  // namespace plimsoll::ops

// Running means and rounding with feedback of its error.
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

std::vector<TensorType> infer_running_mean(const Op& op, Types inputs) {
  const double momentum = std::get<RunningMean>(op).momentum;
  expect(inputs.size() == 2 && inputs[0].shape.rank() >= 1 && base::is_float(inputs[0].dtype), op, inputs, "x (.., C) and a mean");
  expect(inputs[1] == TensorType{DType::f32, Shape{inputs[0].shape[-1]}}, op, inputs, "a mean in f32, as wide as x");
  expect(momentum >= 0.0 && momentum <= 1.0, op, inputs, "a momentum of 0 to 1");
  return {inputs[1]};
}

// Ranks with columns of x have those of the mean.
PlacedOp place_running_mean(const PlacementQuery& query) {
  if (!last_is_split(query, 0)) return place_whole(query, 1);
  const Placement columns = on_dim(query.inputs[0], 0);
  return {query.op, {query.inputs[0], columns}, {columns}};
}

std::vector<TensorType> infer_round_with_error(const Op& op, Types inputs) {
  const DType dtype = std::get<RoundWithError>(op).dtype;
  expect(dtype == DType::bf16 || dtype == DType::f16, op, inputs, "\"dtype\" bf16 or f16");
  expect(inputs.size() == 2 && base::is_float(inputs[0].dtype) && inputs[1] == TensorType{DType::f32, inputs[0].shape}, op, inputs,
         "x and an error in f32 of its shape");
  return {{dtype, inputs[0].shape}, inputs[1]};
}

std::vector<ValueId> round_with_error_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  if (!site.output_grads[0].valid()) return {{}, {}};
  const DType wanted = build.type(site.inputs[0]).dtype;
  if (build.type(site.output_grads[0]).dtype == wanted) return {site.output_grads[0], {}};
  return {build.emit(Cast{.dtype = wanted}, {site.output_grads[0]})[0], {}};
}

}  // namespace

Definition define(const RunningMean&) {
  return {.infer = infer_running_mean,
          .work = [](const Op&, Types inputs,
                     Types outputs) { return Work{static_cast<double>(inputs[0].shape.elements()), bytes_of(inputs, outputs)}; },
          .no_adjoint = "its mean is state that outlives the step; take the mean of a micro-batch where a loss depends on it",
          .aliases = [](const Op&) { return std::vector<Alias>{{.output = 0, .input = 1, .required = true}}; },
          .place = place_running_mean};
}

Definition define(const RoundWithError&) {
  return {.infer = infer_round_with_error,
          .work = elementwise_work<3>,
          .adjoint = round_with_error_adjoint,
          .aliases = [](const Op&) { return std::vector<Alias>{{.output = 1, .input = 1, .required = true}}; },
          .place = place_alike<2>};
}

}  // namespace plimsoll::ops

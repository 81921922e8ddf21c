// Activations, plain and gated.
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

// tanh or erf by a polynomial of about this many operations.
constexpr int kActivationFlops = 20;

std::vector<TensorType> infer_grad(const Op& op, Types inputs) {
  expect(inputs.size() == 2 && inputs[0].shape == inputs[1].shape, op, inputs, "dy and x of one shape");
  return {inputs[0]};
}

std::vector<TensorType> infer_gate(const Op& op, Types inputs) {
  expect(inputs.size() == 1 && inputs[0].shape[-1] % 2 == 0, op, inputs, "x (.., 2F)");
  Shape shape = inputs[0].shape;
  shape.set(-1, shape[-1] / 2);
  return {{inputs[0].dtype, shape}};
}

std::vector<TensorType> infer_gate_grad(const Op& op, Types inputs) {
  expect(inputs.size() == 2 && inputs[1].shape[-1] == 2 * inputs[0].shape[-1] && inputs[0].shape.rows() == inputs[1].shape.rows(), op,
         inputs, "dy (.., F) and x (.., 2F)");
  return {inputs[1]};
}

std::vector<ValueId> activation_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  return build.emit(ActivationGrad{.kind = std::get<Activation>(site.op).kind}, {site.output_grads[0], site.inputs[0]});
}

std::vector<ValueId> gate_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  return build.emit(GateGrad{.kind = std::get<Gate>(site.op).kind}, {site.output_grads[0], site.inputs[0]});
}

std::vector<ValueId> activation_grad_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const ActivationKind kind = std::get<ActivationGrad>(site.op).kind;
  return build.emit(ActivationGradGrad{.kind = kind}, {site.output_grads[0], site.inputs[0], site.inputs[1]});
}

std::vector<ValueId> gate_grad_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const ActivationKind kind = std::get<GateGrad>(site.op).kind;
  return build.emit(GateGradGrad{.kind = kind}, {site.output_grads[0], site.inputs[0], site.inputs[1]});
}

std::vector<TensorType> infer_activation_grad_grad(const Op& op, Types inputs) {
  expect(inputs.size() == 3 && inputs[0].shape == inputs[2].shape && inputs[1].shape == inputs[2].shape, op, inputs,
         "a gradient of dx, dy and x of one shape");
  return {inputs[1], inputs[2]};
}

std::vector<TensorType> infer_gate_grad_grad(const Op& op, Types inputs) {
  expect(inputs.size() == 3 && inputs[0].shape == inputs[2].shape && inputs[2].shape[-1] == 2 * inputs[1].shape[-1] &&
             inputs[1].shape.rows() == inputs[2].shape.rows(),
         op, inputs, "a gradient of dx (.., 2F), dy (.., F) and x (.., 2F)");
  return {inputs[1], inputs[2]};
}

}  // namespace

Definition define(const Activation&) {
  return {.infer = infer_like_first,
          .work = elementwise_work<kActivationFlops>,
          .adjoint = activation_adjoint,
          .aliases = may_overwrite_first,
          .place = place_alike<1>,
          .live_rows = by_rows<1>};
}

Definition define(const ActivationGrad&) {
  return {.infer = infer_grad,
          .work = elementwise_work<kActivationFlops>,

          .adjoint = activation_grad_adjoint,
          .aliases = may_overwrite_first,
          .place = place_alike<1>,
          .live_rows = by_rows<1>};
}

Definition define(const Gate&) {
  return {.infer = infer_gate,
          .work = elementwise_work<kActivationFlops>,
          .adjoint = gate_adjoint,
          .place = place_alike<1>,
          .live_rows = by_rows<1>};
}

Definition define(const GateGrad&) {
  return {.infer = infer_gate_grad,
          .work = elementwise_work<kActivationFlops>,
          .adjoint = gate_grad_adjoint,
          .aliases = [](const Op&) { return std::vector<Alias>{{.output = 0, .input = 1, .required = false}}; },
          .place = place_alike<1>,
          .live_rows = by_rows<1>};
}

Definition define(const ActivationGradGrad&) {
  return {
      .infer = infer_activation_grad_grad, .work = elementwise_work<2 * kActivationFlops>, .no_adjoint = kNoThird, .place = place_alike<2>};
}

Definition define(const GateGradGrad&) {
  return {.infer = infer_gate_grad_grad, .work = elementwise_work<2 * kActivationFlops>, .no_adjoint = kNoThird, .place = place_alike<2>};
}

}  // namespace plimsoll::ops

// Dropout whose mask is a function of counters: nothing is saved, and the adjoint draws the same mask again.
#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

// Ten Philox rounds give four words.
constexpr int kDropoutFlops = 15;

bool is_sample_list(const TensorType& samples, const TensorType& x) {
  return samples.dtype == DType::i32 && samples.shape == Shape{x.shape[0]};
}

std::vector<TensorType> infer_dropout(const Op& op, Types inputs) {
  expect(inputs.size() == 3 && is_sample_list(inputs[1], inputs[0]) && inputs[2] == step_scalars_type(), op, inputs, "x, samples, scalars");
  return {inputs[0]};
}

std::vector<ValueId> dropout_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  std::vector<ValueId> grads(site.inputs.size());
  grads[0] = build.emit(site.op, {site.output_grads[0], site.inputs[1], site.inputs[2]})[0];
  return grads;
}

std::vector<TensorType> infer_residual(const Op& op, Types inputs) {
  const bool drops = std::get<Residual>(op).rate > 0.0;
  expect(inputs.size() == (drops ? 4u : 2u) && inputs[0] == inputs[1], op, inputs,
         "x and r of one type, and samples and scalars to drop by");
  if (drops) expect(is_sample_list(inputs[2], inputs[0]) && inputs[3] == step_scalars_type(), op, inputs, "x, r, samples, scalars");
  return {inputs[0]};
}

std::vector<ValueId> residual_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const auto& residual = std::get<Residual>(site.op);
  std::vector<ValueId> grads(site.inputs.size());
  grads[0] = grads[1] = site.output_grads[0];
  if (residual.rate > 0.0) {
    grads[1] = build.emit(Dropout{.rate = residual.rate, .site = residual.site}, {site.output_grads[0], site.inputs[2], site.inputs[3]})[0];
  }
  return grads;
}

}  // namespace

Definition define(const Dropout&) {
  return {.infer = infer_dropout, .work = elementwise_work<kDropoutFlops>, .adjoint = dropout_adjoint, .aliases = may_overwrite_first};
}

Definition define(const Residual&) {
  return {.infer = infer_residual, .work = elementwise_work<1>, .adjoint = residual_adjoint, .aliases = may_overwrite_first};
}

}  // namespace plimsoll::ops

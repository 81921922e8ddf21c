// Dropout whose mask is a function of counters: nothing is saved, and the adjoint draws the same mask again.
#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

// Ten Philox rounds give four words.
constexpr int kDropoutFlops = 15;

template <typename Attributes>
bool is_sample_list(const Attributes& op, const TensorType& samples, const TensorType& x) {
  if (samples.dtype != DType::i32 || samples.shape.rank() != 1) return false;
  if (op.sample_rows == 0) return samples.shape[0] == x.shape[0];
  return op.first_row >= 0 && op.first_row + x.shape.rows() <= samples.shape[0] * op.sample_rows;
}

std::vector<TensorType> infer_dropout(const Op& op, Types inputs) {
  expect(inputs.size() == 3 && is_sample_list(std::get<Dropout>(op), inputs[1], inputs[0]) && inputs[2] == step_scalars_type(), op, inputs,
         "x, samples, scalars");
  return {inputs[0]};
}

std::vector<ValueId> dropout_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  std::vector<ValueId> grads(site.inputs.size());
  grads[0] = build.emit(site.op, {site.output_grads[0], site.inputs[1], site.inputs[2]})[0];
  return grads;
}

template <typename Sum>
std::vector<TensorType> infer_sum(const Op& op, Types inputs) {
  const auto& residual = std::get<Sum>(op);
  const bool drops = residual.rate > 0.0;
  expect(inputs.size() == (drops ? 4u : 2u) && inputs[0] == inputs[1], op, inputs,
         "x and r of one type, and samples and scalars to drop by");
  if (drops)
    expect(is_sample_list(residual, inputs[2], inputs[0]) && inputs[3] == step_scalars_type(), op, inputs, "x, r, samples, scalars");
  return {inputs[0]};
}

std::vector<ValueId> residual_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const auto& residual = std::get<Residual>(site.op);
  std::vector<ValueId> grads(site.inputs.size());
  grads[0] = grads[1] = site.output_grads[0];
  if (residual.rate > 0.0) {
    const Dropout dropout{
        .rate = residual.rate, .site = residual.site, .first_row = residual.first_row, .sample_rows = residual.sample_rows};
    grads[1] = build.emit(dropout, {site.output_grads[0], site.inputs[2], site.inputs[3]})[0];
  }
  return grads;
}

PlacedOp place_dropout(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  if (!goes_by_rows(query)) return placed;
  placed.op = with_rows_here(std::get<Dropout>(query.op), query);
  placed.inputs[0] = placed.outputs[0] = rows_of(query);
  return placed;
}

// From one kind of sum to the other, with the same dropout.
template <typename To, typename From>
To with_dropout_of(const From& op) {
  return {.rate = op.rate, .site = op.site, .first_row = op.first_row, .sample_rows = op.sample_rows};
}

std::vector<Rebuild::Source> with_samples(std::vector<Rebuild::Source> sources, double rate) {
  if (rate > 0.0) sources.insert(sources.end(), {{.index = 2}, {.index = 3}});
  return sources;
}

// Only what is not dropped of r comes back.
std::optional<Inverse> inverse_residual(const Op& op, std::size_t input, Types) {
  const auto& residual = std::get<Residual>(op);
  if (input > 1 || (input == 1 && residual.rate > 0.0)) return std::nullopt;
  return Inverse{.op = with_dropout_of<Subtract>(residual),
                 .inputs = with_samples({{.output = true}, {.index = input == 0 ? 1 : 0}}, residual.rate)};
}

std::optional<Inverse> inverse_subtract(const Op& op, std::size_t input, Types) {
  const auto& subtract = std::get<Subtract>(op);
  if (input == 1 && subtract.rate <= 0.0) return Inverse{.op = Subtract{}, .inputs = {{.index = 0}, {.output = true}}};
  if (input != 0) return std::nullopt;
  return Inverse{.op = with_dropout_of<Residual>(subtract), .inputs = with_samples({{.output = true}, {.index = 1}}, subtract.rate)};
}

template <typename Sum>
std::optional<int> rows_of_sum(const Op& op) {
  return std::get<Sum>(op).rate > 0.0 ? std::nullopt : std::optional(1);
}

template <typename Sum>
PlacedOp place_sum(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  if (!goes_by_rows(query)) return placed;
  placed.op = with_rows_here(std::get<Sum>(query.op), query);
  placed.inputs[0] = placed.inputs[1] = placed.outputs[0] = rows_of(query);
  return placed;
}

}  // namespace

Definition define(const Dropout&) {
  return {.infer = infer_dropout,
          .work = elementwise_work<kDropoutFlops>,
          .adjoint = dropout_adjoint,
          .aliases = may_overwrite_first,
          .place = place_dropout};
}

Definition define(const Residual&) {
  return {.infer = infer_sum<Residual>,
          .work = elementwise_work<1>,
          .adjoint = residual_adjoint,
          .aliases = may_overwrite_first,
          .inverse = inverse_residual,
          .place = place_sum<Residual>,
          .live_rows = rows_of_sum<Residual>};
}

Definition define(const Subtract&) {
  return {.infer = infer_sum<Subtract>,
          .work = elementwise_work<1>,
          .no_adjoint = "it makes again what was there before a sum; differentiate the sum",
          .aliases = may_overwrite_first,
          .inverse = inverse_subtract,
          .place = place_sum<Subtract>,
          .live_rows = rows_of_sum<Subtract>};
}

}  // namespace plimsoll::ops

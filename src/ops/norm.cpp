// Layer and RMS normalisation, with the residual sum before it, and the per-head form for queries and keys.
#include <algorithm>

#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

constexpr int kNormFlops = 8;
constexpr int kNormGradFlops = 14;

std::size_t first_weight(const Norm& norm) { return norm.residual ? 2 : 1; }

std::vector<TensorType> infer_norm(const Op& op, Types inputs) {
  const auto& norm = std::get<Norm>(op);
  const bool drops = norm.residual && norm.rate > 0.0;
  const std::size_t weight = first_weight(norm);
  const std::size_t count = weight + 1 + (norm.bias ? 1 : 0) + (drops ? 2 : 0);
  expect(inputs.size() == count && inputs[0].shape.rank() >= 1, op, inputs, "x, [r], weight, [bias], [samples, scalars]");
  const TensorType& x = inputs[0];
  if (norm.residual) expect(inputs[1] == x, op, inputs, "x and r of one type");
  expect(inputs[weight].shape == Shape{x.shape[-1]}, op, inputs, "a weight as wide as x");
  if (norm.bias) expect(inputs[weight + 1].shape == Shape{x.shape[-1]}, op, inputs, "a bias as wide as x");
  const TensorType stats{DType::f32, Shape{x.shape.rows(), 2}};
  if (norm.residual) return {x, x, stats};
  return {x, stats};
}

std::vector<ValueId> norm_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const auto& norm = std::get<Norm>(site.op);
  expect_no_gradient(site, norm.residual ? 2 : 1, "the statistics of the rows");
  const std::size_t weight = first_weight(norm);
  const ValueId dsum = norm.residual ? site.output_grads[0] : ValueId{};
  const ValueId dy = site.output_grads[norm.residual ? 1 : 0];
  std::vector<ValueId> grads(site.inputs.size());
  ValueId dx = dsum;
  if (dy.valid()) {
    const ValueId normalised = norm.residual ? site.outputs[0] : site.inputs[0];
    std::vector<ValueId> operands{dy, normalised, site.inputs[weight], site.outputs[norm.residual ? 2 : 1]};
    if (dsum.valid()) operands.push_back(dsum);
    const std::vector<ValueId> made = build.emit(
        NormGrad{.kind = norm.kind, .bias = norm.bias, .has_dsum = dsum.valid(), .dtype = build.grad_dtype(site.inputs[weight])}, operands);
    dx = made[0];
    if (build.wants_grad(site.inputs[weight])) grads[weight] = made[1];
    if (norm.bias && build.wants_grad(site.inputs[weight + 1])) grads[weight + 1] = made[2];
  }
  grads[0] = dx;
  if (norm.residual) {
    grads[1] = dx;
    if (norm.rate > 0.0) {
      const std::size_t samples = weight + 1 + (norm.bias ? 1 : 0);
      const Dropout dropout{.rate = norm.rate, .site = norm.site, .first_row = norm.first_row, .sample_rows = norm.sample_rows};
      grads[1] = build.emit(dropout, {dx, site.inputs[samples], site.inputs[samples + 1]})[0];
    }
  }
  return grads;
}

std::size_t plain_inputs(const NormGrad& grad) { return grad.has_dsum ? 5 : 4; }

std::vector<ValueId> norm_grad_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const auto& grad = std::get<NormGrad>(site.op);
  const ValueId ddx = site.output_grads[0];
  const ValueId ddweight = site.output_grads[1];
  const ValueId ddbias = grad.bias ? site.output_grads[2] : ValueId{};
  std::vector<ValueId> grads(site.inputs.size());
  if (ddx.valid() || ddweight.valid()) {
    std::vector<ValueId> operands(site.inputs.begin(), site.inputs.begin() + 4);
    if (ddx.valid()) operands.push_back(ddx);
    if (ddweight.valid()) operands.push_back(ddweight);
    const NormGradGrad op{.kind = grad.kind, .input = ddx.valid(), .weight = ddweight.valid(), .dtype = build.grad_dtype(site.inputs[2])};
    const std::vector<ValueId> made = build.emit(op, operands);
    grads[0] = made[0];
    grads[1] = made[1];
    if (ddx.valid() && build.wants_grad(site.inputs[2])) grads[2] = made[2];
  }
  if (ddbias.valid()) grads[0] = sum_of(build, grads[0], repeat_rows(build, ddbias, build.type(site.inputs[0])));
  if (grad.has_dsum) grads[4] = ddx;
  if (grad.accumulate) grads[plain_inputs(grad)] = ddweight;
  if (grad.accumulate && grad.bias) grads[plain_inputs(grad) + 1] = ddbias;
  return grads;
}

std::vector<TensorType> infer_norm_grad_grad(const Op& op, Types inputs) {
  const auto& grad = std::get<NormGradGrad>(op);
  const std::size_t count = 4u + (grad.input ? 1u : 0u) + (grad.weight ? 1u : 0u);
  expect(inputs.size() == count && count > 4 && inputs[0].shape == inputs[1].shape && inputs[2].shape == Shape{inputs[1].shape[-1]} &&
             inputs[3].shape == Shape{inputs[1].shape.rows(), 2} && (!grad.input || inputs[4].shape == inputs[1].shape) &&
             (!grad.weight || inputs.back().shape == inputs[2].shape),
         op, inputs, "dy, x, weight, stats, and a gradient of dx, of dweight, or of both");
  return {inputs[0], inputs[1], {grad.dtype, inputs[2].shape}};
}

std::optional<Rebuild> rebuild_norm(const Op& op) {
  Norm norm = std::get<Norm>(op);
  if (!norm.residual) return std::nullopt;
  const auto weight = static_cast<int>(first_weight(norm));
  Rebuild rebuild{.op = {}, .inputs = {{.output = true, .index = 0}, {.index = weight}}, .outputs = {1, 2}};
  if (norm.bias) rebuild.inputs.push_back({.index = weight + 1});
  norm.residual = false;
  norm.rate = 0.0;
  norm.site = 0;
  norm.first_row = norm.sample_rows = 0;
  rebuild.op = norm;
  return rebuild;
}

// What the residual branch was added to.
std::optional<Inverse> inverse_norm(const Op& op, std::size_t input, Types) {
  const auto& norm = std::get<Norm>(op);
  const bool drops = norm.rate > 0.0;
  if (!norm.residual || input > 1 || (input == 1 && drops)) return std::nullopt;
  Inverse inverse{.op = Subtract{.rate = norm.rate, .site = norm.site, .first_row = norm.first_row, .sample_rows = norm.sample_rows},
                  .inputs = {{.output = true}, {.index = input == 0 ? 1 : 0}}};
  const int samples = static_cast<int>(first_weight(norm)) + (norm.bias ? 2 : 1);
  if (drops) inverse.inputs.insert(inverse.inputs.end(), {{.index = samples}, {.index = samples + 1}});
  return inverse;
}

std::vector<TensorType> infer_norm_grad(const Op& op, Types inputs) {
  const auto& grad = std::get<NormGrad>(op);
  const std::size_t plain = plain_inputs(grad);
  expect(inputs.size() >= plain && inputs[0].shape == inputs[1].shape && inputs[2].shape == Shape{inputs[1].shape[-1]} &&
             inputs[3].shape == Shape{inputs[1].shape.rows(), 2},
         op, inputs, "dy, x, weight, stats, [dsum]");
  std::vector<TensorType> result{inputs[0], {grad.dtype, inputs[2].shape}};
  if (grad.bias) result.push_back(result[1]);
  expect_accumulators(op, inputs, plain, grad.accumulate ? Types(result).subspan(1) : Types{});
  return result;
}

std::vector<TensorType> infer_qk_norm(const Op& op, Types inputs) {
  const Heads& heads = std::get<QkNorm>(op).heads;
  expect(inputs.size() == 3 && inputs[0].shape[-1] == heads.packed_width() && inputs[1].shape == Shape{heads.dim} &&
             inputs[2].shape == Shape{heads.dim},
         op, inputs, "packed heads and two weights of the head size");
  return {inputs[0], {DType::f32, Shape{inputs[0].shape.rows(), heads.query + heads.kv}}};
}

std::vector<ValueId> qk_norm_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  expect_no_gradient(site, 1, "the statistics of the heads");
  const auto& norm = std::get<QkNorm>(site.op);
  std::vector<ValueId> grads = build.emit(QkNormGrad{.heads = norm.heads, .dtype = build.grad_dtype(site.inputs[1])},
                                          {site.output_grads[0], site.inputs[0], site.inputs[1], site.inputs[2], site.outputs[1]});
  for (std::size_t weight : {1, 2}) {
    if (!build.wants_grad(site.inputs[weight])) grads[weight] = ValueId{};
  }
  return grads;
}

std::vector<TensorType> infer_qk_norm_grad(const Op& op, Types inputs) {
  const auto& grad = std::get<QkNormGrad>(op);
  expect(inputs.size() >= 5 && inputs[0].shape == inputs[1].shape && inputs[0].shape[-1] == grad.heads.packed_width(), op, inputs,
         "dpacked, packed, two weights, stats");
  const TensorType weight{grad.dtype, Shape{grad.heads.dim}};
  const std::vector<TensorType> result{inputs[0], weight, weight};
  expect_accumulators(op, inputs, 5, grad.accumulate ? Types(result).subspan(1) : Types{});
  return result;
}

std::vector<ValueId> qk_norm_grad_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const auto& grad = std::get<QkNormGrad>(site.op);
  std::vector<ValueId> operands(site.inputs.begin(), site.inputs.begin() + 5);
  for (const ValueId arrived : site.output_grads) {
    if (arrived.valid()) operands.push_back(arrived);
  }
  std::vector<ValueId> grads = build.emit(QkNormGradGrad{.heads = grad.heads,
                                                         .input = site.output_grads[0].valid(),
                                                         .query = site.output_grads[1].valid(),
                                                         .key = site.output_grads[2].valid(),
                                                         .dtype = build.grad_dtype(site.inputs[2])},
                                          operands);
  for (std::size_t weight : {2, 3}) {
    if (!site.output_grads[0].valid() || !build.wants_grad(site.inputs[weight])) grads[weight] = ValueId{};
  }
  grads.resize(site.inputs.size());
  if (grad.accumulate) std::copy(site.output_grads.begin() + 1, site.output_grads.end(), grads.begin() + 5);
  return grads;
}

std::vector<TensorType> infer_qk_norm_grad_grad(const Op& op, Types inputs) {
  const auto& grad = std::get<QkNormGradGrad>(op);
  std::vector<Shape> arrived;
  if (grad.input && inputs.size() > 1) arrived.push_back(inputs[1].shape);
  if (grad.query) arrived.emplace_back(Shape{grad.heads.dim});
  if (grad.key) arrived.emplace_back(Shape{grad.heads.dim});
  const bool fits =
      !arrived.empty() && inputs.size() == 5 + arrived.size() && inputs[0].shape == inputs[1].shape &&
      inputs[0].shape[-1] == grad.heads.packed_width() &&
      std::equal(arrived.begin(), arrived.end(), inputs.begin() + 5, [](const Shape& a, const TensorType& b) { return a == b.shape; });
  expect(fits, op, inputs, "dpacked, packed, two weights, stats, and a gradient of dpacked, of dweight_q or of dweight_k");
  const TensorType weight{grad.dtype, Shape{grad.heads.dim}};
  return {inputs[0], inputs[1], weight, weight};
}

// Rows are normalised one by one; of the weights' gradients a rank has the summands of its rows.
PlacedOp place_norm(const PlacementQuery& query) {
  const auto& norm = std::get<Norm>(query.op);
  PlacedOp placed = place_whole(query, norm.residual ? 3 : 2);
  if (!goes_by_rows(query)) return placed;
  placed.op = with_rows_here(norm, query);
  std::fill_n(placed.inputs.begin(), first_weight(norm), rows_of(query));
  placed.outputs.assign(placed.outputs.size(), rows_of(query));
  return placed;
}

PlacedOp place_norm_grad(const PlacementQuery& query) {
  const auto& grad = std::get<NormGrad>(query.op);
  PlacedOp placed = place_whole(query, grad.bias ? 3 : 2);
  if (!goes_by_rows(query)) return placed;
  for (const std::size_t operand : {0, 1, 3}) placed.inputs[operand] = rows_of(query);
  if (grad.has_dsum) placed.inputs[4] = rows_of(query);
  std::fill(placed.inputs.begin() + static_cast<std::ptrdiff_t>(plain_inputs(grad)), placed.inputs.end(), partial());
  placed.outputs.assign(placed.outputs.size(), partial());
  placed.outputs[0] = rows_of(query);
  return placed;
}

PlacedOp place_qk_norm(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 2);
  if (!last_is_split(query, 0)) return placed;
  auto norm = std::get<QkNorm>(query.op);
  norm.heads = heads_here(norm.heads, query.seat);
  placed.op = norm;
  placed.inputs[0] = placed.outputs[0] = query.inputs[0];
  placed.outputs[1] = on_dim(query.inputs[0], 1);
  return placed;
}

// All heads share the weights, so a rank has a summand of their gradients.
PlacedOp place_qk_norm_grad(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 3);
  if (!last_is_split(query, 1)) return placed;
  auto grad = std::get<QkNormGrad>(query.op);
  grad.heads = heads_here(grad.heads, query.seat);
  placed.op = grad;
  placed.inputs[0] = placed.inputs[1] = placed.outputs[0] = query.inputs[1];
  placed.inputs[4] = on_dim(query.inputs[1], 1);
  placed.outputs[1] = placed.outputs[2] = partial();
  for (std::size_t sum = 5; sum < query.inputs.size(); ++sum) placed.inputs[sum] = partial();
  return placed;
}

// What is dropped depends on the sample that a row is of.
std::optional<int> live_rows_of_norm(const Op& op) {
  const auto& norm = std::get<Norm>(op);
  if (norm.rate > 0.0) return std::nullopt;
  return norm.residual ? 3 : 2;
}

}  // namespace

Definition define(const Norm&) {
  return {.infer = infer_norm,
          .work = elementwise_work<kNormFlops>,
          .adjoint = norm_adjoint,
          .rebuild = rebuild_norm,
          .inverse = inverse_norm,
          .place = place_norm,
          .live_rows = live_rows_of_norm};
}

Definition define(const NormGrad&) {
  return {.infer = infer_norm_grad,
          .work = elementwise_work<kNormGradFlops>,
          .adjoint = norm_grad_adjoint,
          .aliases =
              [](const Op& op) {
                const auto& grad = std::get<NormGrad>(op);
                return accumulator_aliases(grad.accumulate, 1, grad.bias ? 2 : 1, static_cast<int>(plain_inputs(grad)));
              },
          .accumulating = accumulate_by_attribute<NormGrad>,
          .adding = [](const Op& op) -> std::optional<Op> {
            NormGrad grad = std::get<NormGrad>(op);
            if (grad.has_dsum || grad.accumulate) return std::nullopt;
            grad.has_dsum = true;
            return grad;
          },
          .accumulated_outputs = [](const Op& op) { return std::get<NormGrad>(op).bias ? std::vector<int>{1, 2} : std::vector<int>{1}; },
          .place = place_norm_grad,
          .live_rows = by_rows<1>};
}

Definition define(const QkNorm&) {
  return {.infer = infer_qk_norm, .work = elementwise_work<kNormFlops>, .adjoint = qk_norm_adjoint, .place = place_qk_norm};
}

Definition define(const QkNormGrad&) {
  return {.infer = infer_qk_norm_grad,
          .work = elementwise_work<kNormGradFlops>,
          .adjoint = qk_norm_grad_adjoint,
          .aliases = [](const Op& op) { return accumulator_aliases(std::get<QkNormGrad>(op).accumulate, 1, 2, 5); },
          .accumulating = accumulate_by_attribute<QkNormGrad>,
          .accumulated_outputs = [](const Op&) { return std::vector<int>{1, 2}; },
          .place = place_qk_norm_grad};
}

Definition define(const NormGradGrad&) {
  return {.infer = infer_norm_grad_grad, .work = elementwise_work<2 * kNormGradFlops>, .no_adjoint = kNoThird};
}

Definition define(const QkNormGradGrad&) {
  return {.infer = infer_qk_norm_grad_grad, .work = elementwise_work<2 * kNormGradFlops>, .no_adjoint = kNoThird};
}

}  // namespace plimsoll::ops

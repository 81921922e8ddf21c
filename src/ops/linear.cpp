// y = x w^T + b and its three gradients, kept apart so that a schedule can run the input gradient first and the weight
// gradient whenever there is time.
#include "base/error.h"
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

Shape with_last(Shape shape, std::int64_t extent) {
  shape.set(-1, extent);
  return shape;
}

std::size_t plain_inputs(const Linear& linear) { return linear.bias ? 3 : 2; }

std::vector<TensorType> infer_linear(const Op& op, Types inputs) {
  const auto& linear = std::get<Linear>(op);
  expect(inputs.size() == plain_inputs(linear), op, inputs, linear.bias ? "x, weight, bias" : "x, weight");
  const TensorType& x = inputs[0];
  const TensorType& weight = inputs[1];
  expect(weight.shape.rank() == 2 && x.shape.rank() >= 1 && x.shape[-1] == weight.shape[1], op, inputs,
         "weight (N, K) and x (.., K) with the same K");
  if (linear.bias) expect(inputs[2].shape == Shape{weight.shape[0]}, op, inputs, "a bias of N elements");
  const TensorType y{x.dtype, with_last(x.shape, weight.shape[0])};
  if (linear.activation == ActivationKind::none) return {y};
  return {y, y};
}

Work linear_work(const Op&, Types inputs, Types outputs) {
  const double rows = static_cast<double>(inputs[0].shape.rows());
  const TensorType& weight = inputs[1];
  return {2.0 * rows * static_cast<double>(weight.shape.elements()), bytes_of(inputs, outputs)};
}

std::vector<ValueId> linear_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const auto& linear = std::get<Linear>(site.op);
  ValueId dy = site.output_grads[0];
  if (linear.activation != ActivationKind::none) {
    if (dy.valid()) dy = build.emit(ActivationGrad{.kind = linear.activation}, {dy, site.outputs[1]})[0];
    dy = sum_of(build, dy, site.output_grads[1]);
  }
  std::vector<ValueId> grads(site.inputs.size());
  if (build.wants_grad(site.inputs[0])) grads[0] = build.emit(LinearGradInput{}, {dy, site.inputs[1]})[0];
  if (build.wants_grad(site.inputs[1])) {
    grads[1] = build.emit(LinearGradWeight{.dtype = build.grad_dtype(site.inputs[1])}, {dy, site.inputs[0]})[0];
  }
  if (linear.bias && build.wants_grad(site.inputs[2])) {
    grads[2] = build.emit(BiasGrad{.dtype = build.grad_dtype(site.inputs[2])}, {dy})[0];
  }
  return grads;
}

std::optional<Rebuild> rebuild_linear(const Op& op) {
  const ActivationKind activation = std::get<Linear>(op).activation;
  if (activation == ActivationKind::none) return std::nullopt;
  return Rebuild{.op = Activation{.kind = activation}, .inputs = {{.output = true, .index = 1}}, .outputs = {0}};
}

std::vector<TensorType> infer_grad_input(const Op& op, Types inputs) {
  const bool activates = std::get<LinearGradInput>(op).activation != ActivationKind::none;
  expect(inputs.size() == (activates ? 3u : 2u) && inputs[1].shape.rank() == 2 && inputs[0].shape[-1] == inputs[1].shape[0], op, inputs,
         activates ? "dy (.., N), weight (N, K) and pre (.., K)" : "dy (.., N) and weight (N, K)");
  const TensorType dx{inputs[0].dtype, with_last(inputs[0].shape, inputs[1].shape[1])};
  if (activates) expect(inputs[2] == dx, op, inputs, "pre (.., K) of the gradient's type");
  return {dx};
}

// dx = dy w, times the slope where there is one: with g the gradient before the slope, dy gets g w^T and w gets dy^T g.
std::vector<ValueId> grad_input_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const ActivationKind activation = std::get<LinearGradInput>(site.op).activation;
  const ValueId dy = site.inputs[0];
  const ValueId weight = site.inputs[1];
  ValueId grad = site.output_grads[0];
  std::vector<ValueId> grads(site.inputs.size());
  if (activation != ActivationKind::none) {
    const ValueId product = build.emit(LinearGradInput{}, {dy, weight})[0];
    const std::vector<ValueId> made = build.emit(ActivationGradGrad{.kind = activation}, {grad, product, site.inputs[2]});
    grad = made[0];
    grads[2] = made[1];
  }
  if (build.wants_grad(dy)) grads[0] = build.emit(Linear{}, {grad, weight})[0];
  if (build.wants_grad(weight)) grads[1] = build.emit(LinearGradWeight{.dtype = build.grad_dtype(weight)}, {dy, grad})[0];
  return grads;
}

// dw = dy^T x: with g (N, K) the gradient of dw, dy gets x g^T and x gets dy g.
std::vector<ValueId> grad_weight_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const ValueId dy = site.inputs[0];
  const ValueId x = site.inputs[1];
  std::vector<ValueId> grads(site.inputs.size());
  const auto grad_beside = [&](ValueId value) {
    return as_type(build, site.output_grads[0], {build.type(value).dtype, build.type(site.output_grads[0]).shape});
  };
  if (build.wants_grad(dy)) grads[0] = as_type(build, build.emit(Linear{}, {x, grad_beside(x)})[0], build.type(dy));
  if (build.wants_grad(x)) grads[1] = as_type(build, build.emit(LinearGradInput{}, {dy, grad_beside(dy)})[0], build.type(x));
  if (site.inputs.size() == 3) grads[2] = site.output_grads[0];
  return grads;
}

std::vector<TensorType> infer_grad_weight(const Op& op, Types inputs) {
  const auto& grad = std::get<LinearGradWeight>(op);
  expect(inputs.size() >= 2 && inputs[0].shape.rows() == inputs[1].shape.rows(), op, inputs, "dy (.., N) and x (.., K) with as many rows");
  const std::vector<TensorType> result{{grad.dtype, Shape{inputs[0].shape[-1], inputs[1].shape[-1]}}};
  expect_accumulators(op, inputs, 2, grad.accumulate ? Types(result) : Types{});
  return result;
}

Work grad_weight_work(const Op&, Types inputs, Types outputs) {
  return {2.0 * static_cast<double>(inputs[0].shape.elements()) * static_cast<double>(inputs[1].shape[-1]), bytes_of(inputs, outputs)};
}

std::vector<TensorType> infer_bias_grad(const Op& op, Types inputs) {
  const auto& grad = std::get<BiasGrad>(op);
  expect(!inputs.empty() && inputs[0].shape.rank() >= 1, op, inputs, "dy (.., N)");
  const std::vector<TensorType> result{{grad.dtype, Shape{inputs[0].shape[-1]}}};
  expect_accumulators(op, inputs, 1, grad.accumulate ? Types(result) : Types{});
  return result;
}

std::vector<ValueId> bias_grad_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  std::vector<ValueId> grads(site.inputs.size());
  if (build.wants_grad(site.inputs[0])) grads[0] = repeat_rows(build, site.output_grads[0], build.type(site.inputs[0]));
  if (site.inputs.size() == 2) grads[1] = site.output_grads[0];
  return grads;
}

std::vector<TensorType> infer_repeat_rows(const Op& op, Types inputs) {
  const auto& repeat = std::get<RepeatRows>(op);
  expect(inputs.size() == 1 && repeat.shape.rank() >= 1 && inputs[0].shape == Shape{repeat.shape[-1]} && base::is_float(inputs[0].dtype),
         op, inputs, "a row as wide as the result");
  return {{repeat.dtype, repeat.shape}};
}

std::vector<ValueId> repeat_rows_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  return build.emit(BiasGrad{.dtype = build.type(site.inputs[0]).dtype}, {site.output_grads[0]});
}

Work bias_grad_work(const Op&, Types inputs, Types outputs) {
  return {static_cast<double>(inputs[0].shape.elements()), bytes_of(inputs, outputs)};
}

bool dealt_by_rows(const PlacementQuery& query, std::size_t input) { return query.inputs[input].spread == Spread::rows; }

// Weight rows shared out: each rank makes some of the outputs. Weight columns shared out: each makes a summand of all of them,
// and the bias is one rank's to add. A whole weight works on the rows of x that are here.
PlacedOp place_linear(const PlacementQuery& query) {
  auto linear = std::get<Linear>(query.op);
  PlacedOp placed = place_whole(query, linear.activation == ActivationKind::none ? 1 : 2);
  const Placement weight = query.inputs[1];
  if (weight.spread != Spread::split) {
    if (!dealt_by_rows(query, 0)) return placed;
    placed.inputs[0] = query.inputs[0];
    placed.outputs.assign(placed.outputs.size(), query.inputs[0]);
    return placed;
  }
  placed.inputs[1] = weight;
  if (weight.dim == 0) {
    if (linear.bias) placed.inputs[2] = on_dim(weight, 0);
    for (Placement& output : placed.outputs) output = on_dim(weight, last_dim(query.types[0]));
    return placed;
  }
  if (linear.activation != ActivationKind::none)
    base::not_legal("[linear] the weight's columns are split over the tensor axis, and an activation needs whole sums");
  placed.inputs[0] = on_dim(weight, last_dim(query.types[0]));
  placed.outputs[0] = partial();
  if (linear.bias && query.seat.place > 0) {
    linear.bias = false;
    placed.left_out = {false, false, true};
  }
  placed.op = linear;
  return placed;
}

PlacedOp place_grad_input(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  const Placement weight = query.inputs[1];
  const bool activates = query.inputs.size() == 3;
  if (weight.spread != Spread::split) {
    if (dealt_by_rows(query, 0)) placed.inputs[0] = placed.outputs[0] = query.inputs[0];
  } else if (placed.inputs[1] = weight; weight.dim == 1) {
    placed.outputs[0] = on_dim(weight, last_dim(query.types[0]));
  } else {
    if (activates)
      base::not_legal("[linear_grad_input] the weight's rows are split over the tensor axis, and an activation needs whole sums");
    placed.inputs[0] = on_dim(weight, last_dim(query.types[0]));
    placed.outputs[0] = partial();
  }
  if (activates) placed.inputs[2] = placed.outputs[0];
  return placed;
}

PlacedOp place_grad_weight(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  if (dealt_by_rows(query, 0) && dealt_by_rows(query, 1)) {
    placed.inputs[0] = query.inputs[0];
    placed.inputs[1] = query.inputs[1];
    placed.outputs[0] = partial();
  }
  for (const std::size_t operand : {0, 1}) {
    if (!last_is_split(query, operand)) continue;
    placed.inputs[operand] = query.inputs[operand];
    placed.outputs[0] = on_dim(query.inputs[operand], static_cast<int>(operand));
    break;
  }
  if (query.inputs.size() == 3) placed.inputs[2] = placed.outputs[0];
  return placed;
}

PlacedOp place_bias_grad(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  if (last_is_split(query, 0)) {
    placed.inputs[0] = query.inputs[0];
    placed.outputs[0] = on_dim(query.inputs[0], 0);
  } else if (dealt_by_rows(query, 0)) {
    placed.inputs[0] = query.inputs[0];
    placed.outputs[0] = partial();
  }
  if (query.inputs.size() == 2) placed.inputs[1] = placed.outputs[0];
  return placed;
}

}  // namespace

ValueId repeat_rows(AdjointBuilder& build, ValueId row, const TensorType& type) {
  return build.emit(RepeatRows{.shape = type.shape, .dtype = type.dtype}, {row})[0];
}

std::vector<Product> product_with_transpose(const Op&, Types inputs, Types) {
  const Shape& b = inputs[1].shape;
  return {{.rows = inputs[0].shape.rows(), .columns = b[0], .depth = b[1], .right_transposed = true}};
}

Definition define(const Linear&) {
  return {.infer = infer_linear,
          .work = linear_work,
          .adjoint = linear_adjoint,
          .rebuild = rebuild_linear,
          .place = place_linear,
          .products = product_with_transpose,
          .live_rows = [](const Op& op) { return std::optional(std::get<Linear>(op).activation == ActivationKind::none ? 1 : 2); }};
}

Definition define(const LinearGradInput&) {
  return {.infer = infer_grad_input,
          .work = linear_work,

          .adjoint = grad_input_adjoint,
          .place = place_grad_input,
          .products =
              [](const Op&, Types inputs, Types) {
                const Shape& weight = inputs[1].shape;
                return std::vector<Product>{{.rows = inputs[0].shape.rows(), .columns = weight[1], .depth = weight[0]}};
              },
          .live_rows = by_rows<1>};
}

Definition define(const LinearGradWeight&) {
  return {
      .infer = infer_grad_weight,
      .work = grad_weight_work,
      .adjoint = grad_weight_adjoint,
      .aliases = [](const Op& op) { return accumulator_aliases(std::get<LinearGradWeight>(op).accumulate, 0, 1, 2); },
      .accumulating = accumulate_by_attribute<LinearGradWeight>,
      .accumulated_outputs = [](const Op&) { return std::vector<int>{0}; },
      .place = place_grad_weight,
      .products =
          [](const Op&, Types inputs, Types outputs) {
            const Shape& made = outputs[0].shape;
            return std::vector<Product>{{.rows = made[0], .columns = made[1], .depth = inputs[0].shape.rows(), .left_transposed = true}};
          },
      .live_rows = by_rows<0>};
}

Definition define(const BiasGrad&) {
  return {.infer = infer_bias_grad,
          .work = bias_grad_work,
          .adjoint = bias_grad_adjoint,
          .aliases = [](const Op& op) { return accumulator_aliases(std::get<BiasGrad>(op).accumulate, 0, 1, 1); },
          .accumulating = accumulate_by_attribute<BiasGrad>,
          .accumulated_outputs = [](const Op&) { return std::vector<int>{0}; },
          .place = place_bias_grad,
          .live_rows = by_rows<0>};
}

Definition define(const RepeatRows&) { return {.infer = infer_repeat_rows, .work = elementwise_work<0>, .adjoint = repeat_rows_adjoint}; }

}  // namespace plimsoll::ops

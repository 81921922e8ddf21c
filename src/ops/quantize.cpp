// 8-bit operands and their products. Matrix units take both operands with the sum's dim last, so a tensor is quantized once and
// kept both ways: as it is for one product, transposed for the other.
#include "base/error.h"
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

// What the products' hardware wants of every extent.
constexpr std::int64_t kUnit = 16;

const TensorType kOne{DType::f32, Shape{1}};

bool is_8_bit(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

std::size_t plain_inputs(const Quantize& op) { return 1 + (op.slopes ? 1 : 0) + (op.history > 0 ? 1 : 0); }

std::vector<TensorType> infer_quantize(const Op& op, Types inputs) {
  const auto& quantize = std::get<Quantize>(op);
  expect(is_8_bit(quantize.dtype), op, inputs, "an 8-bit float as its type");
  const std::size_t plain = plain_inputs(quantize);
  expect(inputs.size() >= plain, op, inputs, "x, what goes into the activation, a history");
  const Shape& x = inputs[0].shape;
  expect(x.rank() >= 1 && x.rows() % kUnit == 0 && x[-1] % kUnit == 0, op, inputs, "x (.., K) with rows and K that 16 divides");
  if (quantize.slopes) expect(inputs[1] == inputs[0], op, inputs, "pre of x's type");
  if (quantize.history > 0)
    expect(inputs[plain - 1] == TensorType{DType::f32, Shape{quantize.history}}, op, inputs, "a history of its length");
  std::vector<TensorType> made{{quantize.dtype, x}, {quantize.dtype, Shape{x[-1], x.rows()}}, kOne, kOne};
  const TensorType sums{quantize.sums_dtype, Shape{x[-1]}};
  if (quantize.sums) made.push_back(sums);
  expect_accumulators(op, inputs, plain, quantize.accumulate ? Types(&sums, 1) : Types{});
  return made;
}

std::vector<TensorType> infer_note_amax(const Op& op, Types inputs) {
  expect(inputs.size() == 2 && inputs[0].dtype == DType::f32 && inputs[0].shape.rank() == 1 && inputs[1].dtype == DType::f32 &&
             inputs[1].shape.rank() == 1,
         op, inputs, "a history and largest values");
  return {inputs[0]};
}

std::vector<TensorType> infer_scaled_linear(const Op& op, Types inputs) {
  const auto& linear = std::get<ScaledLinear>(op);
  const std::size_t plain = linear.bias ? 5 : 4;
  expect(inputs.size() >= plain && is_8_bit(inputs[0].dtype) && is_8_bit(inputs[1].dtype) && inputs[1].shape.rank() == 2 &&
             inputs[0].shape.rank() >= 1 && inputs[0].shape[-1] == inputs[1].shape[1],
         op, inputs, "8-bit a (.., K) and b (N, K) with the same K, their scales");
  expect(inputs[2] == kOne && inputs[3] == kOne, op, inputs, "scales of one element");
  const std::int64_t n = inputs[1].shape[0];
  if (linear.bias) expect(inputs[4].shape == Shape{n}, op, inputs, "a bias of N elements");
  Shape shape = inputs[0].shape;
  shape.set(-1, n);
  const std::vector<TensorType> result{{linear.dtype, shape}};
  expect_accumulators(op, inputs, plain, linear.accumulate ? Types(result) : Types{});
  return result;
}

Work scaled_linear_work(const Op&, Types inputs, Types outputs) {
  return {2.0 * static_cast<double>(inputs[0].shape.rows()) * static_cast<double>(inputs[1].shape.elements()), bytes_of(inputs, outputs)};
}

// Columns may be shared out, and of a matrix rows: each rank finds the largest of its own and scales by that. Scales are powers of two, so
// what all ranks have together is what one would have, but for values too small for its scale.
PlacedOp place_quantize(const PlacementQuery& query) {
  const auto& op = std::get<Quantize>(query.op);
  PlacedOp placed = place_whole(query, op.sums ? 5 : 4);
  const Placement& given = query.inputs[0];
  const Shape& x = query.types[0].shape;
  const bool columns = last_is_split(query, 0);
  if (given.spread != Spread::split || !(columns || (x.rank() == 2 && !op.sums))) return placed;
  const Dealt here = dealt(given, query.seat, x[given.dim]);
  if ((here.count + here.tail) % kUnit != 0) {
    base::not_legal(
        "\"precision\" is \"fp8\" and \"tensor\" is {}, which leaves a rank {} of {} {} of a linear layer; {} must divide them: use a "
        "smaller "
        "\"tensor\", or \"bf16\"",
        query.seat.members, here.count + here.tail, x[given.dim], columns ? "columns" : "rows", kUnit);
  }
  placed.inputs[0] = placed.outputs[0] = given;
  if (op.slopes) placed.inputs[1] = given;
  placed.outputs[1] = on_dim(given, columns ? 0 : 1);
  if (op.sums) placed.outputs[4] = on_dim(given, 0);
  if (op.accumulate) placed.inputs.back() = placed.outputs[4];
  return placed;
}

// Rows of either operand may be shared out: each rank makes some of the result. Where the dim that is summed over is, each makes a summand
// of all of it, and the bias is one rank's to add.
PlacedOp place_scaled_linear(const PlacementQuery& query) {
  auto op = std::get<ScaledLinear>(query.op);
  PlacedOp placed = place_whole(query, 1);
  const Placement& a = query.inputs[0];
  const Placement& b = query.inputs[1];
  if (last_is_split(query, 0) || (b.spread == Spread::split && b.dim == 1)) {
    const Placement summed = last_is_split(query, 0) ? a : b;
    placed.inputs[0] = on_dim(summed, last_dim(query.types[0]));
    placed.inputs[1] = on_dim(summed, 1);
    placed.outputs[0] = partial();
    if (op.bias && query.seat.place > 0) {
      op.bias = false;
      placed.left_out = {false, false, false, false, true};
    }
    placed.op = op;
  } else if (b.spread == Spread::split) {
    placed.inputs[1] = b;
    placed.outputs[0] = on_dim(b, last_dim(query.types[0]));
    if (op.bias) placed.inputs[4] = on_dim(b, 0);
  } else if (a.spread == Spread::split) {
    placed.inputs[0] = placed.outputs[0] = a;
  }
  if (op.accumulate) placed.inputs.back() = placed.outputs[0];
  return placed;
}

}  // namespace

Definition define(const Quantize&) {
  return {.infer = infer_quantize,
          .work = elementwise_work<4>,
          .no_adjoint = kRounded,
          .aliases =
              [](const Op& op) {
                const auto& quantize = std::get<Quantize>(op);
                return accumulator_aliases(quantize.accumulate, 4, 1, static_cast<int>(plain_inputs(quantize)));
              },
          .accumulating = [](const Op& op) { return std::get<Quantize>(op).sums ? accumulate_by_attribute<Quantize>(op) : std::nullopt; },
          .accumulated_outputs = [](const Op& op) { return std::get<Quantize>(op).sums ? std::vector<int>{4} : std::vector<int>{}; },
          .place = place_quantize};
}

Definition define(const NoteAmax&) {
  return {.infer = infer_note_amax, .work = elementwise_work<0>, .no_adjoint = kRounded, .aliases = [](const Op&) {
            return std::vector<Alias>{{.output = 0, .input = 0, .required = true}};
          }};
}

Definition define(const ScaledLinear&) {
  return {.infer = infer_scaled_linear,
          .work = scaled_linear_work,
          .no_adjoint = kRounded,
          .aliases =
              [](const Op& op) {
                const auto& linear = std::get<ScaledLinear>(op);
                return accumulator_aliases(linear.accumulate, 0, 1, linear.bias ? 5 : 4);
              },
          .accumulating = accumulate_by_attribute<ScaledLinear>,
          .accumulated_outputs = [](const Op&) { return std::vector<int>{0}; },
          .place = place_scaled_linear,
          .products = product_with_transpose};
}

}  // namespace plimsoll::ops

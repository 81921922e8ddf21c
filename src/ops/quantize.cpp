// 8-bit operands and their products. Matrix units take both operands with the sum's dim last, so a tensor is quantized once and
// kept both ways: as it is for one product, transposed for the other.
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
  expect(inputs.size() == 2 && inputs[0].dtype == DType::f32 && inputs[0].shape.rank() == 1 && inputs[1] == kOne, op, inputs,
         "a history and an amax");
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

}  // namespace

Definition define(const Quantize&) {
  return {.infer = infer_quantize,
          .work = elementwise_work<4>,
          .aliases =
              [](const Op& op) {
                const auto& quantize = std::get<Quantize>(op);
                return accumulator_aliases(quantize.accumulate, 4, 1, static_cast<int>(plain_inputs(quantize)));
              },
          .accumulating = [](const Op& op) { return std::get<Quantize>(op).sums ? accumulate_by_attribute<Quantize>(op) : std::nullopt; },
          .accumulated_outputs = [](const Op& op) { return std::get<Quantize>(op).sums ? std::vector<int>{4} : std::vector<int>{}; }};
}

Definition define(const NoteAmax&) {
  return {.infer = infer_note_amax, .work = elementwise_work<0>, .aliases = [](const Op&) {
            return std::vector<Alias>{{.output = 0, .input = 0, .required = true}};
          }};
}

Definition define(const ScaledLinear&) {
  return {.infer = infer_scaled_linear,
          .work = scaled_linear_work,
          .aliases =
              [](const Op& op) {
                const auto& linear = std::get<ScaledLinear>(op);
                return accumulator_aliases(linear.accumulate, 0, 1, linear.bias ? 5 : 4);
              },
          .accumulating = accumulate_by_attribute<ScaledLinear>,
          .accumulated_outputs = [](const Op&) { return std::vector<int>{0}; }};
}

}  // namespace plimsoll::ops

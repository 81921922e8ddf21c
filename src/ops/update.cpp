#include <algorithm>

#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

const Update& update_of(const Op& op) { return std::get<Update>(op); }

void expect_kept(const Update& update, const Op& op, Types inputs) {
  for (std::size_t index = 0; index < update.kept(); ++index) {
    const TensorType& operand = inputs[Update::kFirstKept + index];
    const bool is_low = update.split && index == update.low() && operand.dtype == DType::u16;
    expect(operand.shape == inputs[1].shape && (is_low || operand.dtype == DType::f32 || operand.dtype == DType::bf16), op, inputs,
           "weight and states in f32 or bf16, shaped like the gradient");
  }
  if (!update.split) return;
  expect(update.rule->has_signs(), op, inputs, "a rule with a state that is never negative, whose signs a split weight needs");
  expect(inputs[Update::kFirstKept].dtype == DType::bf16 && inputs[Update::kFirstKept + update.low()].dtype == DType::u16, op, inputs,
         "a weight in bf16 and its lower halves in u16");
}

std::vector<TensorType> infer_update(const Op& op, Types inputs) {
  const Update& update = update_of(op);
  const std::size_t operands = update.prelude_operand() + (update.prelude ? 1 : 0) + (update.copy ? 1 : 0);
  expect(inputs.size() == operands && inputs[0] == step_scalars_type(), op, inputs, "scalars, gradient, weight, states, [prelude], [copy]");
  expect_kept(update, op, inputs);
  if (update.rule->prelude == Prelude::matrix) expect(update.prelude, op, inputs, "the matrix that the rule goes by");
  if (update.prelude) {
    expect(update.rule->prelude != Prelude::none, op, inputs, "a rule that has a prelude");
    expect(inputs[update.prelude_operand()] == prelude_type(*update.rule, inputs[1].shape), op, inputs, "what the rule's prelude makes");
  }
  const DType weight = inputs[Update::kFirstKept].dtype;
  std::vector<TensorType> results(inputs.begin() + Update::kFirstKept,
                                  inputs.begin() + static_cast<std::ptrdiff_t>(update.prelude_operand()));
  if (update.copy) {
    expect(inputs.back().shape == inputs[1].shape && (weight == DType::f32 || inputs.back().dtype == weight), op, inputs,
           "a copy shaped like the weight, and of a rounded weight in its type");
    results.push_back(inputs.back());
  }
  if (update.sends) {
    expect(weight == DType::f32 && !update.copy, op, inputs, "a weight in f32 to send in another type, and no copy");
    results.push_back({*update.sends, inputs[1].shape});
  }
  return results;
}

Work update_work(const Op& op, Types inputs, Types outputs) {
  return {static_cast<double>(update_of(op).rule->flops) * static_cast<double>(outputs[0].shape.elements()), bytes_of(inputs, outputs)};
}

std::vector<Alias> overwrites_all(const Op& op) {
  const Update& update = update_of(op);
  std::vector<Alias> aliases;
  for (std::size_t index = 0; index < update.kept(); ++index)
    aliases.push_back({.output = static_cast<int>(index), .input = static_cast<int>(Update::kFirstKept + index), .required = true});
  if (update.copy) {
    const std::size_t copy = update.prelude_operand() + (update.prelude ? 1 : 0);
    aliases.push_back({.output = static_cast<int>(update.kept()), .input = static_cast<int>(copy), .required = true});
  }
  return aliases;
}

// Everything but the scalars, and sums over the whole parameter, is placed like the weight.
PlacedOp place_update(const PlacementQuery& query) {
  const Update& update = update_of(query.op);
  PlacedOp placed = place_elementwise(query, update.kept() + (update.copy ? 1 : 0) + (update.sends ? 1 : 0));
  placed.inputs[0] = whole();
  if (update.prelude && update.rule->prelude == Prelude::sums) placed.inputs[update.prelude_operand()] = whole();
  return placed;
}

std::optional<Op> leave_out_copy(const Op& op) {
  Update update = update_of(op);
  if (!update.copy) return std::nullopt;
  update.copy = update.leaves = false;
  return update;
}

std::optional<Op> let_copy_leave(const Op& op) {
  Update update = update_of(op);
  if (!update.copy || update.leaves) return std::nullopt;
  update.leaves = true;
  return update;
}

std::optional<Op> send_cast(const Op& op, const Op& behind) {
  Update update = update_of(op);
  const auto* cast = std::get_if<Cast>(&behind);
  if (cast == nullptr || update.copy || update.sends || update.split) return std::nullopt;
  update.sends = cast->dtype;
  return update;
}

// ---- preludes

std::vector<TensorType> infer_prelude(const Op& op, Types inputs) {
  const UpdatePrelude& prelude = *prelude_in(op);
  const Update& update = prelude.update;
  expect(update.rule->prelude != Prelude::none, op, inputs, "a rule that has a prelude");
  expect(inputs.size() == update.prelude_operand() + (prelude.into ? 1 : 0) && inputs[0] == step_scalars_type(), op, inputs,
         "scalars, gradient, weight, states, [sums]");
  expect_kept(update, op, inputs);
  const TensorType made = prelude_type(*update.rule, inputs[1].shape);
  expect(!prelude.into || inputs.back() == made, op, inputs, "sums to add to");
  return {made};
}

Work prelude_work(const Op& op, Types inputs, Types outputs) {
  return {static_cast<double>(prelude_in(op)->update.rule->flops) * static_cast<double>(inputs[1].shape.elements()),
          bytes_of(inputs, outputs)};
}

std::vector<Alias> adds_to_sums(const Op& op) {
  const UpdatePrelude& prelude = *prelude_in(op);
  if (!prelude.into) return {};
  return {{.output = 0, .input = static_cast<int>(prelude.update.prelude_operand()), .required = true}};
}

// Of a part of the parameter, part of the sums (which the pass that cuts it adds up), or of the matrix.
PlacedOp place_prelude(const PlacementQuery& query) {
  PlacedOp placed = place_elementwise(query, 1);
  placed.inputs[0] = whole();
  if (prelude_in(query.op)->is_sum()) placed.outputs[0] = whole();
  return placed;
}

std::vector<TensorType> infer_merge_sums(const Op& op, Types inputs) {
  const std::int64_t members = std::get<MergeSums>(op).members;
  expect(inputs.size() == 1 && members > 1 && inputs[0].dtype == DType::u8 && inputs[0].bytes() == members * parameter_sums_type().bytes(),
         op, inputs, "the sums of every one of several members");
  return {parameter_sums_type()};
}

std::vector<TensorType> infer_orthogonalize(const Op& op, Types inputs) {
  const auto& made = std::get<Orthogonalize>(op);
  expect(inputs.size() == 1 && inputs[0].dtype == DType::f32 && inputs[0].shape.rank() == 2 && made.steps >= 1 &&
             inputs[0].shape[0] % made.unit() == 0,
         op, inputs, "an f32 matrix whose rows are whole units of its parts");
  return {inputs[0]};
}

// Of each matrix with `low` as its shorter side: its square, and the square of that, and their product with it.
std::vector<Product> orthogonalize_products(const Op& op, Types inputs, Types) {
  const auto& made = std::get<Orthogonalize>(op);
  const std::int64_t columns = inputs[0].shape[1];
  std::vector<Product> products;
  for (const std::int64_t in_unit : made.rows_in_unit()) {
    const std::int64_t rows = inputs[0].shape[0] / made.unit() * in_unit;
    const std::int64_t low = std::min(rows, columns), high = std::max(rows, columns);
    for (std::int64_t step = 0; step < made.steps; ++step) {
      products.push_back({.rows = low, .columns = low, .depth = high, .right_transposed = true});
      products.push_back({.rows = low, .columns = low, .depth = low});
      products.push_back({.rows = low, .columns = high, .depth = low});
    }
  }
  return products;
}

Work orthogonalize_work(const Op& op, Types inputs, Types outputs) {
  Work work{0.0, bytes_of(inputs, outputs)};
  for (const Product& product : orthogonalize_products(op, inputs, outputs))
    work.flops += 2.0 * static_cast<double>(product.rows) * static_cast<double>(product.columns) * static_cast<double>(product.depth);
  return work;
}

constexpr std::string_view kOfUpdates = "it is a part of an update, behind all gradients; differentiate before the update";

}  // namespace

const UpdatePrelude* prelude_in(const Op& op) { return std::get_if<UpdatePrelude>(&op); }

bool has_prelude(const Op& op) {
  const auto* update = std::get_if<Update>(&op);
  return update != nullptr && update->prelude;
}

std::optional<std::size_t> step_operand(const Op& op) {
  if (!has_prelude(op) || update_of(op).rule->prelude != Prelude::matrix) return std::nullopt;
  return update_of(op).prelude_operand();
}

TensorType prelude_type(const UpdateRule& rule, const Shape& shape) {
  if (rule.prelude == Prelude::sums) return parameter_sums_type();
  return {DType::f32, shape};
}

Definition define(const UpdatePrelude&) {
  return {.infer = infer_prelude, .work = prelude_work, .no_adjoint = kOfUpdates, .aliases = adds_to_sums, .place = place_prelude};
}
Definition define(const MergeSums&) {
  return {.infer = infer_merge_sums,
          .work = [](const Op&, Types inputs, Types outputs) { return Work{0.0, bytes_of(inputs, outputs)}; },
          .no_adjoint = kOfUpdates};
}
Definition define(const Orthogonalize&) {
  return {.infer = infer_orthogonalize, .work = orthogonalize_work, .no_adjoint = kOfUpdates, .products = orthogonalize_products};
}

Definition define(const Update&) {
  return {.infer = infer_update,
          .work = update_work,
          .no_adjoint = "it updates a parameter in place, after all gradients; differentiate before the update",
          .aliases = overwrites_all,
          .place = place_update,
          .update = true,
          .without_copy = leave_out_copy,
          .copy_leaves = let_copy_leave,
          .sending = send_cast,
          .elementwise = true};
}

}  // namespace plimsoll::ops

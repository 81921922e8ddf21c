#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

constexpr std::size_t kFirstWritten = 2;  // scalars and gradient are only read

const Update& update_of(const Op& op) { return std::get<Update>(op); }

// What is written in place: the weight, its states, its lower halves, its copy.
std::size_t written_count(const Update& op) { return 1 + op.states() + (op.split ? 1 : 0) + (op.copy ? 1 : 0); }

std::vector<TensorType> infer_update(const Op& op, Types inputs) {
  const Update& update = update_of(op);
  const std::size_t written = written_count(update);
  expect(inputs.size() == kFirstWritten + written && inputs[0] == step_scalars_type(), op, inputs,
         "scalars, gradient, weight, states, [copy]");
  for (std::size_t index = 0; index < written; ++index) {
    const TensorType& operand = inputs[kFirstWritten + index];
    expect(operand.shape == inputs[1].shape, op, inputs, "operands shaped like the gradient");
    const bool is_copy = update.copy && index + 1 == written;
    const bool is_low = update.split && index == update.low() && operand.dtype == DType::u16;
    expect(is_copy || is_low || operand.dtype == DType::f32 || operand.dtype == DType::bf16, op, inputs,
           "weight and states in f32 or bf16");
  }
  const DType weight = inputs[kFirstWritten].dtype;
  expect(!update.copy || weight == DType::f32 || inputs.back().dtype == weight, op, inputs, "a copy of a rounded weight in its type");
  if (update.split) {
    expect(update.rule->has_signs(), op, inputs, "a rule with a state that is never negative, whose signs a split weight needs");
    expect(weight == DType::bf16 && inputs[kFirstWritten + update.low()].dtype == DType::u16, op, inputs,
           "a weight in bf16 and its lower halves in u16");
  }
  std::vector<TensorType> results(inputs.begin() + kFirstWritten, inputs.end());
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
  std::vector<Alias> aliases;
  for (std::size_t index = 0; index < written_count(update_of(op)); ++index)
    aliases.push_back({.output = static_cast<int>(index), .input = static_cast<int>(kFirstWritten + index), .required = true});
  return aliases;
}

// Everything but the scalars is placed like the weight.
PlacedOp place_update(const PlacementQuery& query) {
  const Update& update = update_of(query.op);
  PlacedOp placed = place_elementwise(query, written_count(update) + (update.sends ? 1 : 0));
  placed.inputs[0] = whole();
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

}  // namespace

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

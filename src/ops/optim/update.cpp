// Optimizer updates: (scalars, gradient, weight, states.., [low], [copy]) -> (weight, states.., [low], [copy]), all in place.
#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

constexpr int kAdamFlops = 15;
constexpr int kSgdFlops = 4;
constexpr int kFirstWritten = 2;  // scalars and gradient are only read

int written_count(const Op& op) {
  if (const auto* adam = std::get_if<AdamUpdate>(&op)) return 3 + (adam->split ? 1 : 0) + (adam->copy ? 1 : 0);
  const auto& sgd = std::get<SgdUpdate>(op);
  return 1 + (sgd.momentum != 0.0 ? 1 : 0) + (sgd.copy ? 1 : 0);
}

bool makes_copy(const Op& op) {
  if (const auto* adam = std::get_if<AdamUpdate>(&op)) return adam->copy;
  return std::get<SgdUpdate>(op).copy;
}

bool is_split(const Op& op) {
  const auto* adam = std::get_if<AdamUpdate>(&op);
  return adam != nullptr && adam->split;
}

std::vector<TensorType> infer_update(const Op& op, Types inputs) {
  const auto written = static_cast<std::size_t>(written_count(op));
  expect(inputs.size() == kFirstWritten + written && inputs[0] == step_scalars_type(), op, inputs,
         "scalars, gradient, weight, states, [copy]");
  for (std::size_t index = 0; index < written; ++index) {
    const TensorType& operand = inputs[kFirstWritten + index];
    expect(operand.shape == inputs[1].shape, op, inputs, "operands shaped like the gradient");
    const bool is_copy = makes_copy(op) && index + 1 == written;
    const bool is_low = is_split(op) && operand.dtype == DType::u16 && index + (makes_copy(op) ? 2 : 1) == written;
    expect(is_copy || is_low || operand.dtype == DType::f32 || operand.dtype == DType::bf16, op, inputs,
           "weight and states in f32 or bf16");
  }
  const DType weight = inputs[kFirstWritten].dtype;
  expect(!makes_copy(op) || weight == DType::f32 || inputs.back().dtype == weight, op, inputs, "a copy of a rounded weight in its type");
  if (is_split(op)) {
    expect(inputs[kFirstWritten].dtype == DType::bf16 && inputs[kFirstWritten + 3].dtype == DType::u16, op, inputs,
           "a weight in bf16 and its lower halves in u16");
  }
  return {inputs.begin() + kFirstWritten, inputs.end()};
}

std::vector<Alias> overwrites_all(const Op& op) {
  std::vector<Alias> aliases;
  for (int index = 0; index < written_count(op); ++index)
    aliases.push_back({.output = index, .input = kFirstWritten + index, .required = true});
  return aliases;
}

// Everything but the scalars is placed like the weight.
PlacedOp place_update(const PlacementQuery& query) {
  PlacedOp placed = place_elementwise(query, static_cast<std::size_t>(written_count(query.op)));
  placed.inputs[0] = whole();
  return placed;
}

template <typename Update>
std::optional<Op> leave_out_copy(const Op& op) {
  Update update = std::get<Update>(op);
  if (!update.copy) return std::nullopt;
  update.copy = false;
  return update;
}

template <typename Update, int kFlops>
constexpr Definition kUpdate{.infer = infer_update,
                             .work = elementwise_work<kFlops>,
                             .no_adjoint = "it updates a parameter in place, after all gradients; differentiate before the update",
                             .aliases = overwrites_all,
                             .place = place_update,
                             .update = true,
                             .without_copy = leave_out_copy<Update>,
                             .elementwise = true};

}  // namespace

Definition define(const AdamUpdate&) { return kUpdate<AdamUpdate, kAdamFlops>; }
Definition define(const SgdUpdate&) { return kUpdate<SgdUpdate, kSgdFlops>; }

}  // namespace plimsoll::ops

// Rotary positions; the rotation back is the adjoint, so nothing is saved.
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

std::vector<TensorType> infer_rope(const Op& op, Types inputs) {
  const Heads& heads = std::get<Rope>(op).heads;
  expect(inputs.size() == 3 && inputs[0].shape[-1] == heads.packed_width() && heads.dim % 2 == 0, op, inputs,
         "packed heads of an even size");
  expect(inputs[1].dtype == DType::i32 && inputs[1].shape.elements() == inputs[0].shape.rows(), op, inputs, "one i32 position per row");
  expect(inputs[2].dtype == DType::f32 && inputs[2].shape.rank() == 2 && inputs[2].shape[1] == heads.dim, op, inputs,
         "an f32 table (context, head size)");
  return {inputs[0]};
}

std::vector<ValueId> rope_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  Rope back = std::get<Rope>(site.op);
  back.inverse = !back.inverse;
  std::vector<ValueId> grads(site.inputs.size());
  grads[0] = build.emit(back, {site.output_grads[0], site.inputs[1], site.inputs[2]})[0];
  return grads;
}

std::optional<Inverse> inverse_rope(const Op& op, std::size_t input, Types) {
  if (input != 0) return std::nullopt;
  Rope back = std::get<Rope>(op);
  back.inverse = !back.inverse;
  return Inverse{.op = back, .inputs = {{.output = true}, {.index = 1}, {.index = 2}}};
}

PlacedOp place_rope(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  if (!last_is_split(query, 0)) return placed;
  auto rope = std::get<Rope>(query.op);
  placed.inputs[0] = placed.outputs[0] = query.inputs[0];
  rope.heads = heads_here(rope.heads, query.seat);
  placed.op = rope;
  return placed;
}

}  // namespace

Definition define(const Rope&) {
  return {.infer = infer_rope,
          .work = elementwise_work<3>,
          .adjoint = rope_adjoint,
          .aliases = may_overwrite_first,
          .inverse = inverse_rope,
          .place = place_rope};
}

}  // namespace plimsoll::ops

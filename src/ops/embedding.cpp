// Sums of table rows, and the scatter that is their gradient.
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

std::vector<TensorType> infer_embed(const Op& op, Types inputs) {
  const auto& embed = std::get<Embed>(op);
  expect(embed.tables >= 1 && inputs.size() == static_cast<std::size_t>(2 * embed.tables), op, inputs,
         "ids and a table, as many times as there are tables");
  for (std::size_t index = 0; index < inputs.size(); index += 2) {
    expect(inputs[index].dtype == DType::i32 && inputs[index].shape == inputs[0].shape, op, inputs, "i32 ids of one shape");
    expect(inputs[index + 1].shape.rank() == 2 && inputs[index + 1].shape[1] == inputs[1].shape[1] &&
               inputs[index + 1].dtype == inputs[1].dtype,
           op, inputs, "tables (rows, C) of one width and element type");
  }
  std::vector<std::int64_t> dims(inputs[0].shape.dims().begin(), inputs[0].shape.dims().end());
  dims.push_back(inputs[1].shape[1]);
  return {{inputs[1].dtype, Shape(std::span<const std::int64_t>(dims))}};
}

Work embed_work(const Op& op, Types inputs, Types outputs) {
  const double moved = static_cast<double>(outputs[0].bytes());
  const auto tables = static_cast<double>(std::get<Embed>(op).tables);
  return {static_cast<double>(outputs[0].shape.elements()) * (tables - 1),
          moved * (tables + 1) + static_cast<double>(inputs[0].bytes()) * tables};
}

std::vector<ValueId> embed_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  std::vector<ValueId> grads(site.inputs.size());
  for (std::size_t index = 0; index < site.inputs.size(); index += 2) {
    const ValueId table = site.inputs[index + 1];
    if (!build.wants_grad(table)) continue;
    const std::int64_t rows = build.type(table).shape[0];
    ValueId ids = site.inputs[index];
    const std::int64_t padding = index == 0 ? std::get<Embed>(site.op).padding : -1;
    if (padding >= 0) ids = build.emit(ShiftIds{.first = 0, .rows = rows, .hidden = padding}, {ids})[0];
    grads[index + 1] = build.emit(EmbedGrad{.rows = rows, .dtype = build.grad_dtype(table)}, {ids, site.output_grads[0]})[0];
  }
  return grads;
}

std::vector<TensorType> infer_embed_grad(const Op& op, Types inputs) {
  const auto& grad = std::get<EmbedGrad>(op);
  expect(inputs.size() >= 2 && inputs[0].dtype == DType::i32 && inputs[0].shape.elements() == inputs[1].shape.rows(), op, inputs,
         "i32 ids and as many rows of dy");
  const std::vector<TensorType> result{{grad.dtype, Shape{grad.rows, inputs[1].shape[-1]}}};
  expect_accumulators(op, inputs, 2, grad.accumulate ? Types(result) : Types{});
  return result;
}

Work embed_grad_work(const Op& op, Types inputs, Types outputs) {
  const double rows_moved = 2.0 * static_cast<double>(inputs[1].bytes());
  const bool accumulate = std::get<EmbedGrad>(op).accumulate;
  return {static_cast<double>(inputs[1].shape.elements()), rows_moved + (accumulate ? 0.0 : static_cast<double>(outputs[0].bytes()))};
}

std::vector<ValueId> embed_grad_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  std::vector<ValueId> grads(site.inputs.size());
  if (build.wants_grad(site.inputs[1])) {
    const ValueId rows = build.emit(Embed{}, {site.inputs[0], site.output_grads[0]})[0];
    grads[1] = as_type(build, rows, build.type(site.inputs[1]));
  }
  if (site.inputs.size() == 3) grads[2] = site.output_grads[0];
  return grads;
}

// Where tables are shared out by rows, a rank adds what it has; tables that are whole are added by the first rank alone.
PlacedOp place_embed(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  placed.left_out.assign(query.inputs.size(), false);
  placed.ids_of.assign(query.inputs.size(), 0);
  bool any = false;
  for (std::size_t table = 1; table < query.inputs.size(); table += 2) {
    if (query.inputs[table].spread != Spread::split || query.inputs[table].dim != 0) continue;
    placed.inputs[table] = query.inputs[table];
    placed.ids_of[table - 1] = query.inputs[table].units;
    any = true;
  }
  if (!any) return placed;
  auto embed = std::get<Embed>(query.op);
  for (std::size_t table = 1; table < query.inputs.size() && query.seat.place > 0; table += 2) {
    if (placed.inputs[table].spread == Spread::split) continue;
    placed.left_out[table - 1] = placed.left_out[table] = true;
    --embed.tables;
  }
  placed.op = embed;
  placed.outputs[0] = partial();
  return placed;
}

// A rank has the rows of its part of the table, whatever dy brings.
PlacedOp place_embed_grad(const PlacementQuery& query) {
  auto grad = std::get<EmbedGrad>(query.op);
  PlacedOp placed = place_whole(query, 1);
  const Placement table = grad.accumulate ? query.inputs[2] : query.wanted;
  if (table.spread != Spread::split) return placed;
  grad.rows = query.seat.units_here(table.units);
  placed.op = grad;
  placed.outputs[0] = table;
  if (grad.accumulate) placed.inputs[2] = table;
  placed.ids_of.assign(query.inputs.size(), 0);
  placed.ids_of[0] = table.units;
  return placed;
}

std::vector<TensorType> infer_shift(const Op& op, Types inputs) {
  expect(inputs.size() == 1 && inputs[0].dtype == DType::i32, op, inputs, "i32 ids");
  return {inputs[0]};
}

}  // namespace

Definition define(const Embed&) {
  return {.infer = infer_embed, .work = embed_work, .adjoint = embed_adjoint, .place = place_embed, .live_rows = by_rows<1>};
}

Definition define(const ShiftIds&) {
  return {
      .infer = infer_shift, .work = elementwise_work<1>, .no_adjoint = "it makes ids", .differs_by_rank = true, .live_rows = by_rows<1>};
}

Definition define(const EmbedGrad&) {
  return {.infer = infer_embed_grad,
          .work = embed_grad_work,
          .adjoint = embed_grad_adjoint,
          .aliases = [](const Op& op) { return accumulator_aliases(std::get<EmbedGrad>(op).accumulate, 0, 1, 2); },
          .accumulating = accumulate_by_attribute<EmbedGrad>,
          .accumulated_outputs = [](const Op&) { return std::vector<int>{0}; },
          .place = place_embed_grad,
          .live_rows = by_rows<0>};
}

}  // namespace plimsoll::ops

// Movement of data between ranks, and the views of memory it needs.
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

bool keeps_extents(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast;
}

void expect_parts(const Collective& collective, const Op& op, Types inputs) {
  expect(!collective.in_place && collective.rows == 0 && collective.first == 0, op, inputs, "whole tensors, and room for what comes");
  for (const TensorType& type : inputs)
    expect(type.shape.rank() > 0 && type.shape[0] % collective.members == 0, op, inputs, "a first dim that the number of ranks divides");
}

std::vector<TensorType> infer_collective(const Op& op, Types inputs) {
  const auto& collective = std::get<Collective>(op);
  expect(inputs.size() == static_cast<std::size_t>(collective.tensors) && collective.members > 0, op, inputs, "as many tensors as it says");
  std::vector<TensorType> outputs(inputs.begin(), inputs.end());
  for (const TensorType& type : inputs)
    expect(collective.first >= 0 && collective.first <= type.shape.elements(), op, inputs, "at least the elements it leaves alone");
  if (collective.kind == CollectiveKind::all_to_all) expect_parts(collective, op, inputs);
  if (keeps_extents(collective.kind) || collective.kind == CollectiveKind::all_to_all) return outputs;
  const Seat seat{.members = collective.members, .place = collective.place};
  for (TensorType& type : outputs) {
    if (collective.rows > 0) {
      const bool gathers = collective.kind == CollectiveKind::all_gather;
      expect(type.shape.rows() == (gathers ? seat.units_here(collective.rows) : collective.rows), op, inputs, "as many rows as it says");
      type.shape = {gathers ? collective.rows : seat.units_here(collective.rows), type.shape[-1]};
      continue;
    }
    expect(type.shape.rank() == 1, op, inputs, "flat tensors");
    if (collective.kind == CollectiveKind::all_gather) {
      type.shape.set(0, type.shape[0] * collective.members);
    } else {
      expect(type.shape[0] % collective.members == 0, op, inputs, "extents that the number of ranks divides");
      type.shape.set(0, type.shape[0] / collective.members);
    }
  }
  return outputs;
}

std::vector<Alias> collective_aliases(const Op& op) {
  const auto& collective = std::get<Collective>(op);
  const bool same = keeps_extents(collective.kind);
  std::vector<Alias> aliases;
  for (int tensor = 0; tensor < collective.tensors && (same || collective.in_place); ++tensor)
    aliases.push_back({.output = tensor, .input = tensor, .required = true, .own_shard = !same});
  return aliases;
}

Work collective_work(const Op&, Types inputs, Types outputs) { return {0.0, bytes_of(inputs, outputs)}; }

// What goes to another rank comes back from there as a gradient. What other kinds mean for gradients depends on who reads their results:
// the passes that put them into a graph know.
std::vector<ValueId> collective_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  auto back = std::get<Collective>(site.op);
  if (back.kind != CollectiveKind::all_to_all) base::not_legal("[{}] has no gradient: {}", name_of(back.kind), kMadeByLowering);
  std::vector<ValueId> given;
  for (ValueId gradient : site.output_grads) {
    if (gradient.valid()) given.push_back(gradient);
  }
  back.tensors = std::ssize(given);
  const std::vector<ValueId> made = build.emit(back, given);
  std::vector<ValueId> gradients;
  std::size_t next = 0;
  for (ValueId gradient : site.output_grads) gradients.push_back(gradient.valid() ? made[next++] : ValueId{});
  return gradients;
}

// Ranks of another axis exchange stretches of the first dim: what tensor ranks share out along others, or have summands of, stays so.
PlacedOp place_collective(const PlacementQuery& query) {
  PlacedOp placed{query.op, std::vector<Placement>(query.inputs.size()), std::vector<Placement>(query.inputs.size())};
  if (std::get<Collective>(query.op).kind != CollectiveKind::all_to_all) return placed;
  for (std::size_t index = 0; index < query.inputs.size(); ++index) {
    const Placement& found = query.inputs[index];
    const bool stays = found.spread == Spread::partial || (found.spread == Spread::split && found.dim != 0);
    if (stays) placed.inputs[index] = placed.outputs[index] = found;
  }
  return placed;
}
Work no_work(const Op&, Types, Types) { return {}; }

std::vector<TensorType> infer_message(const Op& op, Types inputs) {
  const auto& message = std::get<Message>(op);
  const TensorType type{message.dtype, message.shape};
  if (message.receive) {
    expect(inputs.empty(), op, inputs, "no operands");
    return {type};
  }
  expect(inputs.size() == 1 && inputs[0].dtype == type.dtype && message.first >= 0 &&
             message.first <= inputs[0].shape.elements() - type.shape.elements(),
         op, inputs, "one operand that holds what is sent");
  return {};
}

std::vector<TensorType> infer_move(const Op& op, Types inputs) {
  const auto& [from, to, into] = std::get<Move>(op);
  const bool near = from == to || (from == Tier::host) != (to == Tier::host);
  expect(near, op, inputs, "the host's memory at one end");
  expect(inputs.size() == (into ? 2u : 1u) && inputs[0] == inputs.back(), op, inputs, into ? "x and a target of its type" : "one operand");
  return {inputs[0]};
}

std::vector<Alias> move_aliases(const Op& op) {
  if (!std::get<Move>(op).into) return {};
  return {{.output = 0, .input = 1, .required = true}};
}

std::vector<TensorType> infer_move_rows(const Op& op, Types inputs) {
  const auto& [tables, back] = std::get<MoveRows>(op);
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(tables, 0));
  expect(count > 0 && inputs.size() == 1 + count * (back ? 2 : 1) && inputs[0].dtype == DType::i32 && inputs[0].shape.rank() == 1, op,
         inputs, back ? "i32 ids, rows, and as many tables" : "i32 ids and tables");
  const Types given = inputs.last(count);
  std::vector<TensorType> rows;
  for (const TensorType& table : given) {
    expect(table.shape.rank() == 2 && table == given[0], op, inputs, "tables (R, C) of one type");
    rows.push_back({table.dtype, Shape{inputs[0].shape[0], table.shape[1]}});
  }
  if (!back) return rows;
  for (std::size_t table = 0; table < count; ++table)
    expect(inputs[1 + table] == rows[table], op, inputs, "as many rows of each table as there are ids");
  return {given.begin(), given.end()};
}

// Of the rows alone: tables are not looked through.
Work move_rows_work(const Op& op, Types inputs, Types outputs) {
  const auto& [tables, back] = std::get<MoveRows>(op);
  return {0.0, 2.0 * bytes_of(back ? inputs.subspan(1, static_cast<std::size_t>(tables)) : outputs, {})};
}

std::vector<Alias> move_rows_aliases(const Op& op) {
  const auto& [tables, back] = std::get<MoveRows>(op);
  std::vector<Alias> aliases;
  for (int table = 0; table < tables && back; ++table)
    aliases.push_back({.output = table, .input = 1 + static_cast<int>(tables) + table, .required = true});
  return aliases;
}

std::vector<TensorType> infer_view(const Op& op, Types inputs) {
  expect(inputs.size() == 1, op, inputs, "one operand");
  return {{inputs[0].dtype, std::get<View>(op).shape}};
}

std::vector<Alias> view_aliases(const Op&) { return {{.output = 0, .input = 0, .required = true, .view = true}}; }

std::vector<ValueId> view_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const TensorType& whole = build.type(site.inputs[0]);
  if (whole.shape.elements() != std::get<View>(site.op).shape.elements())
    base::not_legal("[view] has no gradient where it pads {} to {}", base::to_string(whole),
                    base::to_string(std::get<View>(site.op).shape));
  return {as_type(build, site.output_grads[0], whole)};
}

std::vector<Alias> slice_aliases(const Op& op) {
  return {{.output = 0, .input = 0, .required = true, .view = true, .part = true, .first = std::get<Slice>(op).first}};
}

std::vector<TensorType> infer_slice(const Op& op, Types inputs) {
  const auto& slice = std::get<Slice>(op);
  expect(inputs.size() == 1 && slice.first >= 0 && slice.count > 0 && slice.first + slice.count <= inputs[0].shape.elements(), op, inputs,
         "one operand that has the elements");
  return {{inputs[0].dtype, Shape{slice.count}}};
}

std::vector<TensorType> infer_own_shard(const Op& op, Types inputs) {
  const std::int64_t members = std::get<OwnShard>(op).members;
  expect(inputs.size() == 1 && inputs[0].shape.rank() == 1 && members > 0 && inputs[0].shape[0] % members == 0, op, inputs,
         "a flat tensor whose extent the number of ranks divides");
  return {{inputs[0].dtype, Shape{inputs[0].shape[0] / members}}};
}

std::vector<Alias> own_shard_aliases(const Op&) { return {{.output = 0, .input = 0, .required = true, .view = true, .own_shard = true}}; }

std::vector<TensorType> infer_pad(const Op& op, Types inputs) {
  expect(inputs.size() == 1 && inputs[0].shape.rank() == 1 && std::get<Pad>(op).valid <= inputs[0].shape[0], op, inputs,
         "a flat tensor with at least the valid elements");
  return {inputs[0]};
}

std::vector<Alias> overwrites_first(const Op&) { return {{.output = 0, .input = 0, .required = true}}; }

std::vector<TensorType> infer_accumulate(const Op& op, Types inputs) {
  expect(!inputs.empty(), op, inputs, "at least one operand");
  if (std::get<Accumulate>(op).accumulate) expect_accumulators(op, inputs, 1, inputs.first(1));
  return {inputs[0]};
}

std::vector<ValueId> accumulate_adjoint(const AdjointSite& site, AdjointBuilder&) {
  return std::vector<ValueId>(site.inputs.size(), site.output_grads[0]);
}

std::vector<Alias> accumulate_aliases(const Op& op) { return accumulator_aliases(std::get<Accumulate>(op).accumulate, 0, 1, 1); }

}  // namespace

bool is_elementwise(const Op& op) {
  const auto* collective = std::get_if<Collective>(&op);
  const bool exchanges = collective != nullptr && collective->kind == CollectiveKind::all_to_all;
  return definition_of(op).elementwise && !exchanges;
}

Definition define(const Collective&) {
  return {.infer = infer_collective,
          .work = collective_work,
          .adjoint = collective_adjoint,
          .aliases = collective_aliases,
          .place = place_collective,
          .runs = Runs::collective,
          .elementwise = true};
}

Definition define(const Message&) {
  return {.infer = infer_message, .work = collective_work, .no_adjoint = kMadeByLowering, .runs = Runs::message, .differs_by_rank = true};
}

Definition define(const Move&) {
  return {.infer = infer_move,
          .work = collective_work,
          .no_adjoint = kMadeByLowering,
          .aliases = move_aliases,
          .place = place_alike<1>,
          .runs = Runs::copy,
          .tier_of_results = [](const Op& op) { return std::get<Move>(op).to; },
          .elementwise = true,
          .live_rows = by_rows<1>};
}

Definition define(const MoveRows&) {
  return {.infer = infer_move_rows,
          .work = move_rows_work,
          .no_adjoint = kMadeByLowering,
          .aliases = move_rows_aliases,
          .runs = Runs::row_copy,
          .tier_of_results = [](const Op& op) { return std::get<MoveRows>(op).back ? Tier::disk : Tier::host; }};
}

Definition define(const View&) {
  return {.infer = infer_view, .work = no_work, .adjoint = view_adjoint, .aliases = view_aliases, .runs = Runs::nothing};
}

Definition define(const Slice&) {
  return {.infer = infer_slice,
          .work = no_work,
          .no_adjoint = kMadeByLowering,
          .aliases = slice_aliases,
          .runs = Runs::nothing,
          .differs_by_rank = true};
}

Definition define(const OwnShard&) {
  return {.infer = infer_own_shard,
          .work = no_work,
          .no_adjoint = kMadeByLowering,
          .aliases = own_shard_aliases,
          .runs = Runs::nothing,
          .differs_by_rank = true};
}

Definition define(const Pad&) {
  return {.infer = infer_pad, .work = elementwise_work<0>, .no_adjoint = kMadeByLowering, .aliases = overwrites_first};
}

Definition define(const Accumulate&) {
  return {.infer = infer_accumulate,
          .work = elementwise_work<1>,
          .adjoint = accumulate_adjoint,
          .aliases = accumulate_aliases,
          .accumulating = accumulate_by_attribute<Accumulate>,
          .accumulated_outputs = [](const Op&) { return std::vector<int>{0}; }};
}

}  // namespace plimsoll::ops

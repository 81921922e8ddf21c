#include "lowering/split_tensor.h"

#include <map>
#include <optional>

#include "base/error.h"
#include "ops/step_scalars.h"

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Role;
using graph::Value;
using graph::ValueId;
using ops::Placement;
using ops::Spread;

class TensorSplit {
 public:
  TensorSplit(const Graph& old, const ops::Seat& seat) : old_(old), seat_(seat), map_(old.values.size()), placement_(old.values.size()) {
    for (std::size_t index = 0; index < old.parameters.size(); ++index) {
      const graph::Parameter& parameter = old.parameters[index];
      const Placement& deal = old.values[parameter.weight].deal;
      placement_[parameter.weight.index] = placement_[parameter.master.index] = deal;
      for (ValueId state : parameter.states) placement_[state.index] = deal;
      if (parameter.gradient.valid()) gradient_of_[parameter.gradient.index] = deal;
    }
  }

  Graph run() {
    new_.blocks = old_.blocks;
    new_.parameters = old_.parameters;
    for (std::uint32_t index = 0; index < old_.values.size(); ++index) {
      if (old_.values[ValueId{index}].role != Role::computed)
        map_[index] = new_.add_value(root(old_.values[ValueId{index}], placement_[index]));
    }
    if (old_.scalars.valid()) new_.scalars = map_[old_.scalars.index];
    for (const Node& node : old_.nodes) {
      if (reads_complete_sums(node) && side_.valid()) merge_squares(node);
      add_node(node);
    }
    for (ValueId id : old_.results) {
      if (placement_[id.index].spread != Spread::whole)
        base::not_legal("{} is wanted whole, but tensor ranks have parts of it", old_.values[id].name);
      new_.results.push_back(map_[id.index]);
    }
    for (graph::Parameter& parameter : new_.parameters) {
      parameter.weight = map_[parameter.weight.index];
      parameter.master = map_[parameter.master.index];
      for (ValueId& state : parameter.states) state = map_[state.index];
      if (parameter.gradient.valid()) parameter.gradient = map_[parameter.gradient.index];
    }
    return std::move(new_);
  }

 private:
  Value root(Value value, const Placement& placement) const {
    if (placement.spread != Spread::split) return value;
    const std::int64_t extent = value.type.shape[placement.dim];
    if (placement.units < seat_.members) {
      base::not_legal("parameter {}: \"tensor\" is {}, but dim {} of {} has {} units that must stay together; use at most {}", value.name,
                      seat_.members, placement.dim, base::to_string(value.type.shape), placement.units, placement.units);
    }
    const std::int64_t unit = extent / placement.units;
    ops::Part part{
        .whole = value.type.shape, .dim = placement.dim, .begin = seat_.units_before(placement.units) * unit, .slice = value.type.shape};
    part.slice.set(placement.dim, seat_.units_here(placement.units) * unit);
    value.type.shape = part.slice;
    value.part = part;
    return value;
  }

  std::vector<ValueId> add(const ops::Op& op, std::vector<ValueId> inputs, const Node& beside, std::string_view name) {
    return new_.add_node(op, std::move(inputs), beside.block, beside.phase, name);
  }

  void add_node(const Node& node) {
    if (std::holds_alternative<ops::CrossEntropy>(node.op) && is_split(node.inputs[0])) return add_cross_entropy(node);
    if (std::holds_alternative<ops::SquaredNorm>(node.op) && is_split(node.inputs[1])) return add_side_square(node);
    if (std::holds_alternative<ops::SquaredNorm>(node.op)) return add_square(node);
    // Places of the pipe axis have the same parts as each other.
    if (node.phase == Phase::join) return finish(node, node.op, {map_[node.inputs[0].index]}, {placement_[node.inputs[0].index]});

    std::vector<Placement> found;
    for (ValueId id : node.inputs) found.push_back(placement_[id.index]);
    const std::vector<base::TensorType> types = old_.types(node.inputs);
    const auto place = ops::definition_of(node.op).place;
    const ops::PlacedOp placed =
        place != nullptr ? place({.op = node.op, .inputs = found, .types = types, .seat = seat_, .wanted = wanted_of(node)})
                         : ops::PlacedOp{node.op, std::vector<Placement>(found.size()), std::vector<Placement>(node.outputs.size())};
    std::vector<ValueId> inputs;
    for (std::size_t index = 0; index < node.inputs.size(); ++index) {
      if (!placed.left_out.empty() && placed.left_out[index]) continue;
      const std::int64_t units = placed.ids_of.empty() ? 0 : placed.ids_of[index];
      inputs.push_back(units > 0 ? shifted(node, node.inputs[index], units) : as_placed(node, node.inputs[index], placed.inputs[index]));
    }
    finish(node, placed.op, inputs, placed.outputs);
  }

  // Adds the node with the old node's results' names and placements.
  void finish(const Node& node, const ops::Op& op, const std::vector<ValueId>& inputs, const std::vector<Placement>& outputs) {
    const std::vector<ValueId> made = add(op, inputs, node, "part");
    for (std::size_t output = 0; output < made.size(); ++output) {
      const ValueId before = node.outputs[output];
      Value& value = new_.values[made[output]];
      value.name = old_.values[before].name;
      value.block = old_.values[before].block;
      map_[before.index] = made[output];
      placement_[before.index] = outputs[output];
      settle_gradient(node, before);
    }
  }

  Placement wanted_of(const Node& node) const {
    const auto found = node.outputs.empty() ? gradient_of_.end() : gradient_of_.find(node.outputs[0].index);
    return found == gradient_of_.end() ? ops::whole() : found->second;
  }

  // A gradient is placed like its parameter before anybody reads it; over micro-batches its summands add up first.
  void settle_gradient(const Node& node, ValueId id) {
    const auto found = gradient_of_.find(id.index);
    if (found == gradient_of_.end() || placement_[id.index] == found->second) return;
    map_[id.index] = as_placed(node, id, found->second);
    new_.nodes[new_.values[map_[id.index]].producer].turn = graph::Turn::last;
  }

  bool is_split(ValueId id) const { return placement_[id.index].spread == Spread::split; }

  // The new value for an old one, moved to where it is needed.
  ValueId as_placed(const Node& user, ValueId id, const Placement& wanted) {
    Placement& found = placement_[id.index];
    if (found == wanted) return map_[id.index];
    if (found.spread == Spread::partial && wanted.spread == Spread::whole) {
      const std::string name = old_.values[id].name;
      map_[id.index] = add(collective(ops::CollectiveKind::all_reduce), {map_[id.index]}, user, name)[0];
      found = ops::whole();
      return map_[id.index];
    }
    base::not_legal("[{}] needs {} {}, but over the tensor axis it is {}; use \"tensor\": 1", ops::name_of(user.op), old_.values[id].name,
                    words(wanted), words(found));
  }

  static std::string words(const Placement& placement) {
    switch (placement.spread) {
      case Spread::whole: return "whole";
      case Spread::split: return fmt::format("split by dim {} in {} units", placement.dim, placement.units);
      case Spread::partial: return "a sum of parts";
    }
    return "?";
  }

  ops::Collective collective(ops::CollectiveKind kind) const {
    return {.kind = kind, .axis = ops::Axis::tensor, .members = seat_.members, .tensors = 1};
  }

  // ---- vocabularies and tables in parts

  ValueId shifted(const Node& node, ValueId ids, std::int64_t units) {
    // Made anew in each phase: ids are small, and what is kept for the backward pass is not.
    const auto key = std::tuple(ids.index, units, node.block.index, static_cast<int>(node.phase));
    const auto [found, fresh] = shifted_.try_emplace(key);
    if (fresh) {
      const ops::ShiftIds shift{.first = seat_.units_before(units), .rows = seat_.units_here(units)};
      found->second = add(shift, {map_[ids.index]}, node, old_.values[ids].name + ".here")[0];
    }
    return found->second;
  }

  void add_cross_entropy(const Node& node) {
    const std::int64_t units = placement_[node.inputs[0].index].units;
    const ValueId targets = shifted(node, node.inputs[1], units);
    const ValueId part = add(ops::CrossEntropyPart{}, {map_[node.inputs[0].index], targets}, node, "loss.part")[0];
    const ValueId all = add(collective(ops::CollectiveKind::all_gather), {part}, node, "loss.parts")[0];
    finish(node, ops::CrossEntropyMerge{.members = seat_.members}, {all, map_[node.inputs[1].index]}, {ops::whole(), ops::whole()});
  }

  // ---- the norm: squares of what is split are summed apart and added up over the ranks, so that what is whole counts once

  void add_square(const Node& node) {
    const ValueId gradient = as_placed(node, node.inputs[1], ops::whole());
    finish(node, node.op, {map_[node.inputs[0].index], gradient}, {ops::whole()});
  }

  void add_side_square(const Node& node) {
    if (!side_.valid()) side_ = add(ops::FreshScalars{}, {}, node, "scalars.split")[0];
    side_ = add(node.op, {side_, map_[node.inputs[1].index]}, node, "scalars.split")[0];
    map_[node.outputs[0].index] = map_[node.inputs[0].index];
  }

  // The verdict, or the places of a pipeline that add up theirs before it.
  static bool reads_complete_sums(const Node& node) {
    const auto* collective = std::get_if<ops::Collective>(&node.op);
    return node.phase == Phase::verdict || (node.phase == Phase::norm && collective != nullptr && collective->axis == ops::Axis::pipe);
  }

  void merge_squares(const Node& reader) {
    Node beside = reader;
    beside.phase = Phase::norm;
    beside.block = BlockId{0};
    const ValueId all = add(collective(ops::CollectiveKind::all_gather), {side_}, beside, "scalars.splits")[0];
    const ops::MergeScalars merge{.members = seat_.members, .norm = true, .add = true};
    ValueId& scalars = map_[reader.inputs[0].index];
    scalars = add(merge, {scalars, all}, beside, "scalars.tensor")[0];
    side_ = {};
  }

  const Graph& old_;
  ops::Seat seat_;
  Graph new_;
  std::vector<ValueId> map_;                        // old value -> new value
  std::vector<Placement> placement_;                // of old values, as they are now
  std::map<std::uint32_t, Placement> gradient_of_;  // old gradient -> where its parameter is
  std::map<std::tuple<std::uint32_t, std::int64_t, std::uint32_t, int>, ValueId> shifted_;
  ValueId side_;  // scalars that hold the squares of what is split
};

}  // namespace

Graph split_over_tensor(const Graph& graph, const ops::Seat& seat) {
  if (seat.members == 1) return graph;
  return TensorSplit(graph, seat).run();
}

}  // namespace plimsoll::lowering

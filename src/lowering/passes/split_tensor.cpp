#include "lowering/passes/split_tensor.h"

#include <map>
#include <optional>

#include "base/error.h"
#include "graph/rewrite.h"
#include "lowering/passes/preludes.h"
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
  TensorSplit(const Graph& old, const ops::Seat& seat, const strategy::Strategy& strategy)
      : old_(old),
        seat_(seat),
        by_rows_(strategy.sequence_parallel),
        sends_rows_(strategy.sequence_parallel || strategy.scatter_boundaries),
        strategy_(strategy),
        rewrite_(old, graph::Values::fresh),
        new_(rewrite_.to()),
        preludes_(
            rewrite_, [this](std::size_t tensors) { return collective(ops::CollectiveKind::all_gather, tensors); },
            [this](const graph::Site& site, const std::vector<PreludeExchange::Piece>& pieces) { return put_together(site, pieces); }),
        placement_(old.values.size()),
        leaves_block_(old.values.size()) {
    // What belongs to no parameter says itself how it is dealt out.
    for (std::uint32_t index = 0; index < old.values.size(); ++index) {
      if (old.values[ValueId{index}].role == Role::state) placement_[index] = old.values[ValueId{index}].deal;
    }
    for (std::size_t index = 0; index < old.parameters.size(); ++index) {
      const graph::Parameter& parameter = old.parameters[index];
      const Placement& deal = old.values[parameter.weight].deal;
      placement_[parameter.weight.index] = placement_[parameter.master.index] = deal;
      for (ValueId state : parameter.states) placement_[state.index] = deal;
      if (parameter.gradient.valid()) gradient_of_[parameter.gradient.index] = deal;
    }
    for (std::uint32_t index = 0; index < old.values.size(); ++index) {
      const Value& value = old.values[ValueId{index}];
      if (value.state.cut == ops::State::Cut::own) placement_[index] = value.deal;
    }
    for (const Node& node : old.nodes) {
      for (ValueId id : node.inputs) leaves_block_[id.index] = leaves_block_[id.index] || old.values[id].block != node.block;
    }
  }

  Graph run() {
    for (std::uint32_t index = 0; index < old_.values.size(); ++index) {
      if (old_.values[ValueId{index}].role != Role::computed)
        rewrite_.declare(ValueId{index}, root(old_.values[ValueId{index}], placement_[index]));
    }
    for (const Node& node : old_.nodes) {
      if (!unsettled_.empty() && (node.block != beside_.block || node.phase != beside_.phase)) settle_gradients();
      if (reads_complete_sums(node) && side_.valid()) merge_squares(node);
      add_node(node);
    }
    if (!unsettled_.empty()) settle_gradients();
    for (ValueId id : old_.results) put_result_together(id);
    return rewrite_.take();
  }

 private:
  Value root(Value value, const Placement& placement) const {
    if (placement.spread != Spread::split) return value;
    if (!ops::can_be_dealt(placement, seat_.members)) {
      std::string more;  // neighbours may share a unit that is made of as many parts
      for (std::int64_t sharers = 2; sharers <= placement.own; ++sharers) {
        if (placement.own % sharers == 0) more += fmt::format(", or {}", placement.units * sharers);
      }
      base::not_legal("parameter {}: \"tensor\" is {}, but dim {} of {} has {} unit{} that must stay together; set \"tensor\" to {}{}{}",
                      value.name, seat_.members, placement.dim, base::to_string(value.type.shape), placement.units,
                      placement.units == 1 ? "" : "s", placement.units, placement.units == 1 ? "" : " or less", more);
    }
    const ops::Dealt here = dealt_here(placement, value.type.shape[placement.dim]);
    ops::Part part{.whole = value.type.shape,
                   .dim = placement.dim,
                   .begin = here.begin,
                   .slice = value.type.shape,
                   .tail = here.tail,
                   .tail_begin = here.tail_begin};
    part.slice.set(placement.dim, here.count + here.tail);
    value.type.shape = part.slice;
    value.part = part;
    return value;
  }

  // Of heads that neighbours share, a cache has what they have in common alone: key and value.
  ops::Dealt dealt_here(const Placement& placement, std::int64_t extent) const {
    const std::int64_t same = ops::sharers(placement, seat_.members);
    if (same == 1 || extent != placement.units * placement.shared) return ops::dealt(placement, seat_, extent);
    return {.tail_begin = seat_.place / same * placement.shared, .tail = placement.shared};
  }

  // All ranks have a result whole: logits, of which each has made those of its part of the vocabulary.
  void put_result_together(ValueId id) {
    const Placement placement = placement_[id.index];
    if (placement.spread == Spread::whole) return;
    const Node maker = old_.nodes[old_.values[id].producer];
    const std::string& name = old_.values[id].name;
    if (placement.spread == Spread::split) {
      new_.values[rewrite_.now(id)].name = name + ".part";
      const ValueId wide = add(ops::PutPart{.part = part_of(id, placement)}, {rewrite_.now(id)}, maker, name + ".wide")[0];
      rewrite_.replace(id, add(collective(ops::CollectiveKind::all_reduce), {wide}, maker, name)[0]);
    } else {
      rewrite_.replace(id, as_placed(maker, id, ops::whole()));
      new_.values[rewrite_.now(id)].name = name;
    }
    placement_[id.index] = ops::whole();
  }

  std::vector<ValueId> add(const ops::Op& op, std::vector<ValueId> inputs, const Node& beside, std::string_view name) {
    return rewrite_.make(op, std::move(inputs), graph::beside(beside), name);
  }

  void add_node(const Node& node) {
    preludes_.settle_for(node);
    const auto* prelude = ops::prelude_in(node.op);
    if (prelude != nullptr && is_split(node.inputs[ops::Update::kFirstKept])) return add_prelude(node, *prelude);
    if (std::holds_alternative<ops::CrossEntropy>(node.op) && is_split(node.inputs[0])) return add_cross_entropy(node);
    if (ops::sums_squares(node.op) && is_split(node.inputs[1])) return add_side_square(node);
    if (ops::sums_squares(node.op)) return add_square(node);
    if (ops::is_message(node.op)) return add_message(node, std::get<ops::Message>(node.op));
    // Places of the pipe axis have the same parts as each other.
    if (node.phase == Phase::join) return finish(node, node.op, {rewrite_.now(node.inputs[0])}, {placement_[node.inputs[0].index]});

    std::vector<Placement> found;
    for (ValueId id : node.inputs) found.push_back(placement_[id.index]);
    const std::vector<base::TensorType> types = old_.types(node.inputs);
    const auto place = ops::definition_of(node.op).place;
    const ops::PlacedOp placed =
        place != nullptr
            ? place({.op = node.op, .inputs = found, .types = types, .seat = seat_, .wanted = wanted_of(node), .by_rows = by_rows_})
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
      rewrite_.replace(before, made[output]);
      placement_[before.index] = outputs[output];
      settle_gradient(node, before);
      // What another block reads is put together here, where its summands are: less is kept, and less goes to another stage.
      if (placement_[before.index].spread == Spread::partial && leaves_block_[before.index] && !gradient_of_.contains(before.index))
        as_placed(node, before, by_rows_ ? ops::rows(old_.values[before].type.shape.rows()) : ops::whole());
    }
  }

  Placement wanted_of(const Node& node) const {
    const auto found = node.outputs.empty() ? gradient_of_.end() : gradient_of_.find(node.outputs[0].index);
    return found == gradient_of_.end() ? ops::whole() : found->second;
  }

  // A gradient is placed like its parameter before anybody reads it; over micro-batches its summands add up first. What a block
  // has to sum is summed together, when its backward pass is over.
  void settle_gradient(const Node& node, ValueId id) {
    const auto found = gradient_of_.find(id.index);
    if (found == gradient_of_.end()) return;
    const bool shares = found->second.shared > 0 && ops::sharers(found->second, seat_.members) > 1;
    if (placement_[id.index] == found->second && !shares) return;
    unsettled_.push_back(id);
    beside_ = node;
  }

  void settle_gradients() {
    std::vector<ValueId> sums;
    std::vector<ValueId> given;
    for (ValueId id : unsettled_) {
      const Placement& wanted = gradient_of_.at(id.index);
      if (placement_[id.index] == wanted) {
        sum_shared(id, wanted);
      } else if (placement_[id.index].spread == Spread::partial && wanted.spread == Spread::whole) {
        sums.push_back(id);
        given.push_back(rewrite_.now(id));
      } else {
        base::not_legal("the gradient {} is {}, but its parameter is {}; use \"tensor\": 1", old_.values[id].name,
                        words(placement_[id.index]), words(wanted));
      }
    }
    unsettled_.clear();
    if (sums.empty()) return;
    const std::vector<ValueId> made = add(collective(ops::CollectiveKind::all_reduce, sums.size()), given, beside_, "grad.tensor");
    rewrite_.newest().turn = graph::Turn::last;
    for (std::size_t index = 0; index < sums.size(); ++index) {
      new_.values[made[index]].name = old_.values[sums[index]].name;
      rewrite_.replace(sums[index], made[index]);
      placement_[sums[index].index] = ops::whole();
    }
  }

  // Of the key and value rows that neighbours hold too, each has a summand.
  void sum_shared(ValueId id, const Placement& wanted) {
    PLIMSOLL_CHECK(wanted.dim == 0, "{} is shared by dim {}", old_.values[id].name, wanted.dim);
    const base::Shape& shape = new_.values[rewrite_.now(id)].type.shape;
    const ops::Dealt here = ops::dealt(wanted, seat_, old_.values[id].type.shape[0]);
    const ops::Collective sum{.kind = ops::CollectiveKind::all_reduce,
                              .axis = ops::Axis::tensor_inner,
                              .members = ops::sharers(wanted, seat_.members),
                              .first = here.count * (shape.elements() / shape[0])};
    rewrite_.replace(id, add(sum, {rewrite_.now(id)}, beside_, old_.values[id].name)[0]);
    rewrite_.newest().turn = graph::Turn::last;
  }

  bool is_split(ValueId id) const { return placement_[id.index].spread == Spread::split; }

  // The new value for an old one, moved to where it is needed.
  ValueId as_placed(const Node& user, ValueId id, const Placement& wanted) {
    Placement& found = placement_[id.index];
    if (found == wanted) return rewrite_.now(id);
    const std::string& name = old_.values[id].name;
    if (found.spread == Spread::partial && wanted.spread == Spread::whole) {
      rewrite_.replace(id, add(collective(ops::CollectiveKind::all_reduce), {rewrite_.now(id)}, user, name)[0]);
      found = wanted;
      return rewrite_.now(id);
    }
    if (found.spread == Spread::partial && wanted.spread == Spread::rows) {
      rewrite_.replace(id, add(row_collective(ops::CollectiveKind::reduce_scatter, wanted), {rewrite_.now(id)}, user, name)[0]);
      found = wanted;
      return rewrite_.now(id);
    }
    if (found.spread == Spread::rows && wanted.spread == Spread::whole) return gathered(user, id);
    if (found.spread == Spread::whole && wanted.spread == Spread::split && user.phase == Phase::update)
      return add(ops::TakePart{part_of(id, wanted)}, {rewrite_.now(id)}, user, name + ".part")[0];
    base::not_legal("[{}] needs {} {}, but over the tensor axis it is {}; use \"tensor\": 1", ops::name_of(user.op), old_.values[id].name,
                    words(wanted), words(found));
  }

  // All rows of a value, for the users of one block: in the backward pass they are gathered again, and not kept from the forward pass.
  ValueId gathered(const Node& user, ValueId id) {
    const auto key = std::tuple(id.index, user.block.index, user.phase == Phase::forward);
    const auto [found, fresh] = gathered_.try_emplace(key);
    if (fresh) {
      const std::string& name = old_.values[id].name;
      const ops::Collective gather = row_collective(ops::CollectiveKind::all_gather, placement_[id.index]);
      const ValueId matrix = add(gather, {rewrite_.now(id)}, user, name + ".all")[0];
      found->second = add(ops::View{.shape = old_.values[id].type.shape}, {matrix}, user, name + ".whole")[0];
    }
    return found->second;
  }

  // ---- messages: every rank of the axis has the same to send, so each sends its rows

  void add_message(const Node& node, const ops::Message& whole) {
    const std::int64_t rows = whole.shape.rows();
    const bool alike = !strategy_.own_degrees() || strategy_.at(whole.peer).tensor == seat_.members;
    const bool in_rows = sends_rows_ && alike && whole.shape.rank() > 1 && rows >= seat_.members;
    if (!in_rows) {
      if (whole.receive) return finish(node, whole, {}, {ops::whole()});
      return finish(node, whole, {as_placed(node, node.inputs[0], ops::whole())}, {});
    }
    ops::Message mine = whole;
    mine.shape = {seat_.units_here(rows), whole.shape[-1]};
    if (whole.receive) {
      finish(node, mine, {}, {ops::rows(rows)});
      if (!by_rows_) keep_gathered(node, node.outputs[0]);
      return;
    }
    const ValueId id = node.inputs[0];
    if (by_rows_ && placement_[id.index].spread != Spread::whole) return finish(node, mine, {as_placed(node, id, ops::rows(rows))}, {});
    mine.first = seat_.units_before(rows) * whole.shape[-1];
    finish(node, mine, {as_placed(node, id, ops::whole())}, {});
  }

  // All rows of a value, for all that comes.
  void keep_gathered(const Node& node, ValueId id) {
    rewrite_.replace(id, gathered(node, id));
    placement_[id.index] = ops::whole();
  }

  static std::string words(const Placement& placement) {
    switch (placement.spread) {
      case Spread::whole: return "whole";
      case Spread::split: return fmt::format("split by dim {} in {} units", placement.dim, placement.units);
      case Spread::partial: return "a sum of parts";
      case Spread::rows: return fmt::format("split by its {} rows", placement.units);
    }
    return "?";
  }

  ops::Collective collective(ops::CollectiveKind kind, std::size_t tensors = 1) const {
    return {.kind = kind, .axis = ops::Axis::tensor, .members = seat_.members, .tensors = static_cast<std::int64_t>(tensors)};
  }

  ops::Collective row_collective(ops::CollectiveKind kind, const Placement& rows) const {
    if (rows.units < seat_.members) {
      base::not_legal(
          "\"sequence_parallel\" is true, but a micro-batch has {} rows (samples x sequence) for {} tensor ranks; use longer sequences or "
          "\"sequence_parallel\": false",
          rows.units, seat_.members);
    }
    ops::Collective op = collective(kind);
    op.rows = rows.units;
    op.place = seat_.place;
    return op;
  }

  // ---- preludes of updates

  void add_prelude(const Node& node, ops::UpdatePrelude prelude) {
    const Placement& placement = placement_[node.inputs[ops::Update::kFirstKept].index];
    prelude.counted = counted(node.inputs[ops::Update::kFirstKept], placement);
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) inputs.push_back(rewrite_.now(id));
    const ValueId old = node.outputs[0];
    dealt_[old.index] = placement;
    preludes_.wait({.old = old, .made = add(prelude, inputs, node, old_.values[old].name + ".part")[0]}, prelude.is_sum());
  }

  // Of steps in parts: each in its place among zeros, so that a sum puts them together.
  std::vector<ValueId> put_together(const graph::Site& site, const std::vector<PreludeExchange::Piece>& pieces) {
    std::vector<ValueId> wide;
    for (const PreludeExchange::Piece& piece : pieces) {
      const Placement& placement = dealt_.at(piece.old.index);
      const ops::PutPart put{.part = part_of(piece.old, placement),
                             .without_tail = seat_.place % ops::sharers(placement, seat_.members) > 0};
      wide.push_back(rewrite_.make_one(put, {piece.made}, site, old_.values[piece.old].name + ".wide"));
    }
    return rewrite_.make(collective(ops::CollectiveKind::all_reduce, wide.size()), wide, site, "steps.whole");
  }

  // What this rank has of a value that is dealt out so.
  ops::PartOfDim part_of(ValueId old, const Placement& placement) const {
    const std::int64_t extent = old_.values[old].type.shape[placement.dim];
    const ops::Dealt here = ops::dealt(placement, seat_, extent);
    return {
        .dim = placement.dim, .extent = extent, .begin = here.begin, .count = here.count, .tail_begin = here.tail_begin, .tail = here.tail};
  }

  // Elements that count here, where others count the tail; -1: all.
  std::int64_t counted(ValueId old, const Placement& placement) const {
    if (placement.shared == 0 || seat_.place % ops::sharers(placement, seat_.members) == 0) return -1;
    const base::Shape& whole = old_.values[old].type.shape;
    return ops::dealt(placement, seat_, whole[0]).count * (whole.elements() / whole[0]);
  }

  // ---- vocabularies and tables in parts

  ValueId shifted(const Node& node, ValueId ids, std::int64_t units) {
    // Made anew in each phase: ids are small, and what is kept for the backward pass is not.
    const auto key = std::tuple(ids.index, units, node.block.index, static_cast<int>(node.phase));
    const auto [found, fresh] = shifted_.try_emplace(key);
    if (fresh) {
      const ops::ShiftIds shift{.first = seat_.units_before(units), .rows = seat_.units_here(units)};
      found->second = add(shift, {rewrite_.now(ids)}, node, old_.values[ids].name + ".here")[0];
    }
    return found->second;
  }

  void add_cross_entropy(const Node& node) {
    const std::int64_t units = placement_[node.inputs[0].index].units;
    const ValueId targets = shifted(node, node.inputs[1], units);
    const ValueId part = add(ops::CrossEntropyPart{}, {rewrite_.now(node.inputs[0]), targets}, node, "loss.part")[0];
    const ValueId all = add(collective(ops::CollectiveKind::all_gather), {part}, node, "loss.parts")[0];
    finish(node, ops::CrossEntropyMerge{.members = seat_.members}, {all, rewrite_.now(node.inputs[1])}, {ops::whole(), ops::whole()});
  }

  // ---- the norm: squares of what is split are summed apart and added up over the ranks, so that what is whole counts once

  void add_square(const Node& node) {
    const ValueId gradient = as_placed(node, node.inputs[1], ops::whole());
    finish(node, node.op, {rewrite_.now(node.inputs[0]), gradient}, {ops::whole()});
  }

  void add_side_square(const Node& node) {
    if (!side_.valid()) side_ = add(ops::FreshScalars{}, {}, node, "scalars.split")[0];
    const ops::SquaredNorm square{.counted = counted(node.inputs[1], placement_[node.inputs[1].index])};
    side_ = add(square, {side_, rewrite_.now(node.inputs[1])}, node, "scalars.split")[0];
    rewrite_.replace(node.outputs[0], rewrite_.now(node.inputs[0]));
  }

  // The verdict, or the places of a pipeline that add up theirs before it.
  static bool reads_complete_sums(const Node& node) {
    return node.phase == Phase::verdict || (node.phase == Phase::norm && ops::is_collective(node.op));
  }

  void merge_squares(const Node& reader) {
    Node beside = reader;
    beside.phase = Phase::norm;
    beside.block = BlockId{0};
    const ValueId all = add(collective(ops::CollectiveKind::all_gather), {side_}, beside, "scalars.splits")[0];
    const ops::MergeScalars merge{.members = seat_.members, .norm = true, .add = true};
    const ValueId scalars = reader.inputs[0];
    rewrite_.replace(scalars, add(merge, {rewrite_.now(scalars), all}, beside, "scalars.tensor")[0]);
    side_ = {};
  }

  const Graph& old_;
  ops::Seat seat_;
  bool by_rows_;
  bool sends_rows_;
  const strategy::Strategy& strategy_;
  graph::Rewrite rewrite_;
  Graph& new_;
  PreludeExchange preludes_;
  std::map<std::uint32_t, Placement> dealt_;        // old step of a prelude -> how its parameter is dealt out
  std::vector<Placement> placement_;                // of old values, as they are now
  std::vector<bool> leaves_block_;                  // old values that other blocks read
  std::map<std::uint32_t, Placement> gradient_of_;  // old gradient -> where its parameter is
  std::map<std::tuple<std::uint32_t, std::int64_t, std::uint32_t, int>, ValueId> shifted_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, ValueId> gathered_;
  std::vector<ValueId> unsettled_;  // old gradients of the block in hand that are not yet as their parameters are
  Node beside_;                     // the last of the nodes that made them
  ValueId side_;                    // scalars that hold the squares of what is split
};

}  // namespace

Graph split_over_tensor(const Graph& graph, const ops::Seat& seat, const strategy::Strategy& strategy) {
  if (seat.members == 1) return graph;
  return TensorSplit(graph, seat, strategy).run();
}

std::int64_t head_sharers(const Graph& graph, std::int64_t members) {
  std::int64_t most = 1;
  for (const graph::Parameter& parameter : graph.parameters) {
    const Placement& deal = graph.values[parameter.weight].deal;
    if (deal.shared > 0) most = std::max(most, ops::sharers(deal, members));
  }
  return most;
}

}  // namespace plimsoll::lowering

// Weights that are not trained, in a form of fewer bytes.
//
// The root holds the records; every pass of a block that reads the weight decodes it for itself, so elements live no longer than that: what
// a step needs beside the records is the decoded weights of one block. The table of the embedding stays, since a few of its rows are
// looked up, and so does the head, whose logits are sensitive.
#include <map>
#include <tuple>

#include "graph/passes/passes.h"
#include "graph/rewrite.h"

namespace plimsoll::graph {

namespace {

using base::DType;
using base::Shape;

class FrozenStore {
 public:
  FrozenStore(const Graph& old, const ops::FormInfo& form)
      : old_(old), info_(form), rewrite_(old, Values::fresh), stored_(old.values.size(), nullptr) {
    for (const Parameter& parameter : old.parameters) {
      if (parameter.frozen && old.values[parameter.weight].type.shape.rank() == 2 && !is_excepted(parameter))
        stored_[parameter.weight.index] = &parameter;
    }
  }

  Graph run() {
    for (std::uint32_t index = 0; index < old_.values.size(); ++index) {
      const ValueId id{index};
      if (old_.values[id].role != Role::computed) rewrite_.declare(id, root(id));
    }
    for (const Node& node : old_.nodes) {
      std::vector<ValueId> inputs;
      for (ValueId id : node.inputs) inputs.push_back(stored_[id.index] != nullptr ? decoded(node, id) : rewrite_.now(id));
      rewrite_.keep(node, std::move(inputs));
    }
    for (std::size_t index = 0; index < old_.parameters.size(); ++index) {
      const Parameter& parameter = old_.parameters[index];
      if (stored_[parameter.weight.index] == nullptr) continue;
      rewrite_.to().parameters[index].stored = {&info_, old_.values[parameter.weight].type};
    }
    return rewrite_.take();
  }

 private:
  // Read by the last block, or with ids.
  bool is_excepted(const Parameter& parameter) const {
    for (const Node& node : old_.nodes) {
      bool reads = false, by_ids = false;
      for (ValueId id : node.inputs) {
        reads = reads || id == parameter.weight;
        by_ids = by_ids || old_.values[id].type.dtype == DType::i32;
      }
      if (reads && (by_ids || node.block.index + 1 == old_.blocks.size())) return true;
    }
    return false;
  }

  Value root(ValueId id) const {
    Value value = old_.values[id];
    if (stored_[id.index] == nullptr) return value;
    value.deal = deal_of_records(value);
    value.type = ops::stored_type(info_, value.type.shape);
    value.name += fmt::format(".{}", info_.name);
    return value;
  }

  // Rows are dealt out as those of the weight. Columns only where a unit is whole records; else in records, which then have to be the
  // columns that a rank has (ops::Decode); else not at all.
  ops::Placement deal_of_records(const Value& weight) const {
    ops::Placement deal = weight.deal;
    if (deal.spread != ops::Spread::split || deal.dim == 0) return deal;
    const std::int64_t columns = weight.type.shape[1];
    if (columns % info_.block != 0) return ops::split(1, 1);
    const std::int64_t unit = columns / deal.units;
    if (unit % (info_.block * std::max<std::int64_t>(1, deal.own + deal.shared)) == 0) return deal;
    return ops::split(1, columns / info_.block);
  }

  ValueId decoded(const Node& reader, ValueId weight) {
    const auto [found, fresh] = decoded_.try_emplace({weight.index, reader.block.index, reader.phase});
    if (!fresh) return found->second;
    const Value& whole = old_.values[weight];
    const bool by_columns = whole.deal.spread == ops::Spread::split && whole.deal.dim == 1;
    const ops::Decode decode{.form = &info_,
                             .columns = whole.type.shape[1],
                             .dtype = whole.type.dtype,
                             .units = by_columns ? whole.deal.units : 0,
                             .own = by_columns ? whole.deal.own : 0};
    return found->second = rewrite_.make_one(decode, {rewrite_.now(weight)}, beside(reader), whole.name);
  }

  const Graph& old_;
  const ops::FormInfo& info_;
  Rewrite rewrite_;
  std::vector<const Parameter*> stored_;                                        // by value
  std::map<std::tuple<std::uint32_t, std::uint32_t, Phase>, ValueId> decoded_;  // weight, block, phase
};

}  // namespace

Graph store_frozen(const Graph& graph, const ops::FormInfo& form) { return FrozenStore(graph, form).run(); }

}  // namespace plimsoll::graph

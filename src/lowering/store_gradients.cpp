#include "lowering/store_gradients.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ops/step_scalars.h"

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Turn;
using graph::ValueId;
using ops::Tier;

// A gradient that leaves.
struct Leaving {
  ValueId last;     // as the update reads it
  ValueId first;    // what the first operator makes of it, in the same memory
  ValueId home;     // where it lives
  ValueId put;      // home, after the last micro-batch wrote it
  NodeId norm;      // old: the squares of it
  BlockId block{};  // that makes `first`
  Phase phase = Phase::backward;
};

class Store {
 public:
  Store(const Graph& old, Tier tier, std::int32_t micro_batches) : old_(old), new_(old), tier_(tier), micro_batches_(micro_batches) {
    new_.nodes = {};
    scalars_ = unmoved_ = old.scalars;
    for (std::uint32_t index = 0; index < old.nodes.size(); ++index) {
      const Node& node = old.nodes[NodeId{index}];
      if (node.phase == Phase::norm && std::holds_alternative<ops::SquaredNorm>(node.op) && !merged_) consider(node, NodeId{index});
      // Squares that follow the exchange of sums are of what every rank has whole: they are small and stay.
      merged_ = merged_ || (node.phase == Phase::norm && std::holds_alternative<ops::MergeScalars>(node.op));
    }
  }

  Graph run() {
    for (std::uint32_t index = 0; index < old_.nodes.size(); ++index) {
      const Node& node = old_.nodes[NodeId{index}];
      const bool starts =
          index == 0 || old_.nodes[NodeId{index - 1}].block != node.block || old_.nodes[NodeId{index - 1}].phase != node.phase;
      if (starts) begin_stretch(index);
      copy(NodeId{index});
      const bool ends = index + 1 == old_.nodes.size() || old_.nodes[NodeId{index + 1}].block != node.block ||
                        old_.nodes[NodeId{index + 1}].phase != node.phase;
      if (ends) end_stretch(node);
    }
    return std::move(new_);
  }

 private:
  void consider(const Node& node, NodeId id) {
    Leaving leaving{.last = node.inputs[1], .first = node.inputs[1], .home = {}, .put = {}, .norm = id};
    const Node* maker = &old_.nodes[old_.values[leaving.last].producer];
    if (maker->turn == Turn::last && micro_batches_ > 1) {
      base::not_legal(
          "\"offload.gradients\" moves gradients out after every micro-batch, but the data ranks keep them whole until the last of {}; "
          "use \"zero\": 2 or 3 with \"keep_grads\": false, or one micro-batch",
          micro_batches_);
    }
    // Back along what works in the same memory.
    for (bool found = true; found;) {
      found = false;
      maker = &old_.nodes[old_.values[leaving.first].producer];
      for (const ops::Alias& alias : ops::aliases_of(maker->op)) {
        if (!alias.required || maker->outputs[static_cast<std::size_t>(alias.output)] != leaving.first) continue;
        leaving.first = maker->inputs[static_cast<std::size_t>(alias.input)];
        found = true;
        break;
      }
    }
    leaving.block = maker->block;
    leaving.phase = maker->phase;
    const graph::Value& value = old_.values[leaving.last];
    leaving.home = new_.add_value({.name = value.name + ".kept",
                                   .type = value.type,
                                   .role = graph::Role::gradient,
                                   .block = value.block,
                                   .tier = tier_,
                                   .all_micro_batches = true});
    leaving_of_[leaving.last.index] = leaving_.size();
    hoisted_.insert(id.index);
    leaving_.push_back(leaving);
    for (graph::Parameter& parameter : new_.parameters) {
      if (parameter.gradient == leaving.last) parameter.gradient_leaves = true;
    }
  }

  std::vector<ValueId> make(const ops::Op& op, std::vector<ValueId> inputs, BlockId block, Phase phase, Turn turn,
                            const std::string& name) {
    std::vector<ValueId> made = new_.add_node(op, std::move(inputs), block, phase, name);
    new_.nodes[NodeId{static_cast<std::uint32_t>(new_.nodes.size() - 1)}].turn = turn;
    return made;
  }

  // What earlier micro-batches left comes back for a stretch that adds to it: one stretch ahead of it.
  void begin_stretch(std::uint32_t begin) {
    if (micro_batches_ == 1 || !graph::runs_per_micro_batch(old_.nodes[NodeId{begin}].phase)) return;
    const Node& here = old_.nodes[NodeId{begin}];
    std::uint32_t next = begin;
    while (next < old_.nodes.size() && old_.nodes[NodeId{next}].block == here.block && old_.nodes[NodeId{next}].phase == here.phase) ++next;
    bring_back(here, here);
    if (next < old_.nodes.size() && old_.nodes[NodeId{next}].phase == here.phase) bring_back(old_.nodes[NodeId{next}], here);
  }

  void bring_back(const Node& wanted, const Node& issued) {
    if (!brought_.insert({wanted.block.index, wanted.phase}).second) return;
    std::vector<std::pair<const Leaving*, ValueId>> near;
    for (const Leaving& leaving : leaving_) {
      if (leaving.block != wanted.block || leaving.phase != wanted.phase) continue;
      ValueId from = leaving.home;
      if (tier_ == Tier::disk)
        from = make(ops::Move{.from = Tier::disk, .to = Tier::host}, {from}, wanted.block, issued.phase, Turn::later,
                    new_.values[from].name + ".near")[0];
      near.emplace_back(&leaving, from);
    }
    for (const auto& [leaving, from] : near) {
      const ValueId back = make(ops::Move{.from = Tier::host, .to = Tier::device}, {from}, wanted.block, issued.phase, Turn::later,
                                new_.values[from].name + ".back")[0];
      new_.values[back].in_memory_of = leaving->first;
    }
  }

  void copy(NodeId old_id) {
    Node node = old_.nodes[old_id];
    for (ValueId& input : node.inputs) {
      if (input == unmoved_ && !graph::runs_per_micro_batch(node.phase)) input = scalars_;
      if (const auto found = now_.find(input.index); found != now_.end()) input = found->second;
    }
    if (hoisted_.contains(old_id.index)) {  // done before
      now_[node.outputs[0].index] = scalars_;
      return;
    }
    if (node.phase == Phase::update) {
      for (ValueId& input : node.inputs) {
        if (const auto found = leaving_of_.find(input.index); found != leaving_of_.end()) input = leaving_[found->second].put;
      }
    }
    const NodeId id = new_.nodes.next_id();
    for (ValueId output : node.outputs) {
      new_.values[output].producer = id;
      if (new_.values[output].type == ops::step_scalars_type()) scalars_ = unmoved_ = output;
      if (leaving_of_.contains(output.index)) ready_.push_back(leaving_of_.at(output.index));
    }
    new_.nodes.add(std::move(node));
  }

  // The gradients that the stretch completed go out.
  void end_stretch(const Node& node) {
    for (std::size_t index : ready_) {
      const Leaving& leaving = leaving_[index];
      scalars_ = make(old_.nodes[leaving.norm].op, {scalars_, leaving.last}, node.block, node.phase, Turn::last, "scalars.norm")[0];
    }
    std::vector<ValueId> near;
    for (std::size_t index : ready_) {
      Leaving& leaving = leaving_[index];
      const std::string& name = new_.values[leaving.last].name;
      if (tier_ == Tier::host) {
        leaving.put = make(ops::Move{.from = Tier::device, .to = Tier::host, .into = true}, {leaving.last, leaving.home}, node.block,
                           node.phase, Turn::each, name + ".put")[0];
      } else {
        near.push_back(
            make(ops::Move{.from = Tier::device, .to = Tier::host}, {leaving.last}, node.block, node.phase, Turn::each, name + ".near")[0]);
      }
    }
    for (std::size_t index = 0; index < near.size(); ++index) {
      Leaving& leaving = leaving_[ready_[index]];
      leaving.put = make(ops::Move{.from = Tier::host, .to = Tier::disk, .into = true}, {near[index], leaving.home}, node.block, node.phase,
                         Turn::each, new_.values[leaving.last].name + ".put")[0];
    }
    ready_.clear();
  }

  const Graph& old_;
  Graph new_;
  Tier tier_;
  std::int32_t micro_batches_;
  bool merged_ = false;
  std::vector<Leaving> leaving_;
  std::map<std::uint32_t, std::size_t> leaving_of_;  // old gradient -> which of them
  std::set<std::uint32_t> hoisted_;                  // old nodes of the norm that run with the backward pass
  std::set<std::pair<std::uint32_t, Phase>> brought_;
  std::map<std::uint32_t, ValueId> now_;  // old scalars -> new
  ValueId scalars_;                       // newest
  ValueId unmoved_;                       // newest of those that are where they were
  std::vector<std::size_t> ready_;        // gradients that the stretch has completed
};

}  // namespace

Graph store_gradients(const Graph& graph, Tier tier, std::int32_t micro_batches) {
  const bool updates = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.phase == Phase::update; });
  return updates ? Store(graph, tier, micro_batches).run() : graph;
}

}  // namespace plimsoll::lowering

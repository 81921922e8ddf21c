#include "lowering/passes/square_early.h"

#include <map>
#include <set>
#include <vector>

#include "graph/rewrite.h"
#include "graph/scalar_chains.h"
#include "lowering/passes/stretches.h"

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;

// Scalars are chains of values in one memory: the step's, and where tensor ranks share out gradients, one for the squares of those. What
// is squared after ranks have exchanged their sums is whole on every rank and counts once: such squares are summed beside the chain, in
// scalars of their own, and added where they were.
class SquareEarly {
 public:
  explicit SquareEarly(const Graph& old) : old_(old), chains_(old), rewrite_(old), moved_(old.nodes.size(), false) {
    std::set<std::uint32_t> exchanged;  // chains
    for (std::uint32_t index = 0; index < old.nodes.size(); ++index) {
      const Node& node = old.nodes[NodeId{index}];
      if (node.phase != Phase::norm || !makes_scalars(node)) continue;
      const ValueId chain = chains_.of(node.outputs[0]);
      if (std::holds_alternative<ops::MergeScalars>(node.op)) exchanged.insert(chain.index);
      if (ops::sums_squares(node.op)) consider(NodeId{index}, chain, exchanged.contains(chain.index));
    }
  }

  Graph run() {
    for (const Stretch& stretch : stretches_of(old_)) {
      for (std::uint32_t index = stretch.begin; index < stretch.end; ++index) {
        const Node& node = old_.nodes[NodeId{index}];
        if (!moved_[index]) copy(node);
        if (moved_[index] && stretch.phase == Phase::norm) add_beside(node);
      }
      if (stretch.phase == Phase::begin) begin_chains(stretch);
      square(stretch);
    }
    return rewrite_.take();
  }

 private:
  bool makes_scalars(const Node& node) const { return !node.outputs.empty() && chains_.has(node.outputs[0]); }

  void consider(NodeId id, ValueId chain, bool exchanged) {
    const ValueId gradient = old_.nodes[id].inputs[1];
    const NodeId maker = old_.values[gradient].producer;
    if (!maker.valid() || !graph::runs_per_micro_batch(old_.nodes[maker].phase)) return;
    moved_[id.index] = true;
    squares_[gradient.index] = id;
    if (exchanged) {
      beside_.try_emplace(chain.index);
      sums_beside_.insert(id.index);
    } else if (const NodeId start = old_.values[chain].producer; start.valid() && !moved_[start.index]) {
      moved_[start.index] = true;  // a chain of its own starts with the step
      starts_.push_back(start);
    }
  }

  void begin_chains(const Stretch& stretch) {
    for (NodeId start : starts_) {
      Node node = old_.nodes[start];
      node.block = stretch.block;
      node.phase = stretch.phase;
      rewrite_.to().values[node.outputs[0]].all_micro_batches = true;
      copy(node);
    }
    for (auto& [chain, newest] : beside_) {
      newest = rewrite_.make_one(ops::FreshScalars{}, {}, {stretch.block, stretch.phase}, "scalars.whole");
      rewrite_.to().values[newest].all_micro_batches = true;
    }
  }

  void copy(Node node) {
    for (ValueId& input : node.inputs) {
      if (!chains_.has(input)) continue;
      // What computes micro-batch by micro-batch reads nothing of them that changes in a step, but it may be a link of the chain.
      const auto newest = newest_.find(chains_.of(input).index);
      if (newest != newest_.end() && (!graph::runs_per_micro_batch(node.phase) || makes_scalars(node))) input = newest->second;
    }
    for (ValueId output : node.outputs) {
      if (const auto found = squares_.find(output.index); found != squares_.end()) complete_.push_back(found->second);
    }
    if (makes_scalars(node)) newest_[chains_.of(node.outputs[0]).index] = node.outputs[0];
    rewrite_.keep(std::move(node));
  }

  void square(const Stretch& stretch) {
    for (NodeId id : complete_) {
      const Node& node = old_.nodes[id];
      const std::uint32_t chain = chains_.of(node.outputs[0]).index;
      ValueId& newest = sums_beside_.contains(id.index) ? beside_.at(chain) : newest_.at(chain);
      newest = rewrite_.make_one(node.op, {newest, node.inputs[1]}, {stretch.block, stretch.phase, graph::Turn::last}, "scalars.norm");
    }
    complete_.clear();
  }

  // Where the first of the squares was that are summed beside the chain.
  void add_beside(const Node& node) {
    const std::uint32_t chain = chains_.of(node.outputs[0]).index;
    const auto found = beside_.find(chain);
    if (found == beside_.end() || !sums_beside_.contains(old_.values[node.outputs[0]].producer.index)) return;
    const ops::MergeScalars add{.members = 1, .norm = true, .add = true};
    newest_[chain] = rewrite_.make_one(add, {newest_.at(chain), found->second}, graph::beside(node), "scalars.all");
    beside_.erase(found);
  }

  const Graph& old_;
  graph::ScalarChains chains_;
  graph::Rewrite rewrite_;
  std::vector<bool> moved_;                  // old nodes that run elsewhere
  std::vector<NodeId> starts_;               // of chains of their own
  std::map<std::uint32_t, NodeId> squares_;  // gradient -> the old node that squares it
  std::set<std::uint32_t> sums_beside_;      // old nodes whose squares are summed beside the chain
  std::map<std::uint32_t, ValueId> beside_;  // chain -> the newest of the scalars beside it
  std::map<std::uint32_t, ValueId> newest_;  // chain -> its newest value
  std::vector<NodeId> complete_;             // squares of what the stretch in hand has made
};

}  // namespace

Graph square_early(const Graph& graph) { return SquareEarly(graph).run(); }

}  // namespace plimsoll::lowering

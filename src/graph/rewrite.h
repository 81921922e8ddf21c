// What passes are written with: lays the nodes of a graph down anew, in any order and with others between them.
//
//   Rewrite rewrite(graph);
//   for (const Node& node : graph.nodes) {
//     if (wants_copy(node)) rewrite.replace(weight, rewrite.make_one(copy, {weight}, beside(node), "weight.near"));
//     rewrite.keep(node);
//   }
//   return rewrite.take();
//
// A pass that only moves or adds nodes keeps the values: they have the ids of the old graph, and new ones come behind them. A pass that
// gives values other types, or leaves some out, makes them anew: nothing is there but what it adds. Either way `now` says which value
// stands for one of the old graph at this point.
#pragma once

#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace plimsoll::graph {

// Where in the step a node runs.
struct Site {
  BlockId block;
  Phase phase = Phase::forward;
  Turn turn = Turn::each;

  bool operator==(const Site&) const = default;
};

// Where a node does, for each micro-batch.
inline Site beside(const Node& node) { return {.block = node.block, .phase = node.phase}; }

// Notes anew which node makes each value: where nodes were left out, nothing is left that makes some.
void renew_producers(Graph& graph);

enum class Values : std::uint8_t { kept, fresh };

class Rewrite {
 public:
  // `from` must outlive it. Blocks and parameters are those of the old graph until the pass changes them.
  explicit Rewrite(const Graph& from, Values values = Values::kept);

  const Graph& from() const { return from_; }
  Graph& to() { return to_; }
  const Graph& to() const { return to_; }

  // What stands for a value of the old graph; invalid where nothing does yet. Where values are kept, one that the pass made stands for
  // itself.
  ValueId now(ValueId id) const { return id.valid() && id.index < now_.size() ? now_[id.index] : id; }
  // From here on `made` stands for `old`.
  void replace(ValueId old, ValueId made) { now_[old.index] = made; }

  // Adds a value that stands for an old one from here on: a root, as it was or as the pass wants it.
  ValueId declare(ValueId old) { return declare(old, from_.values[old]); }
  ValueId declare(ValueId old, Value value);

  // A node of the old graph, perhaps changed: its operands are what stands for them now. Its results keep their ids, or are made anew with
  // the types that the operands give them.
  NodeId keep(Node node);
  // The same with operands of the new graph.
  NodeId keep(Node node, std::vector<ValueId> inputs);
  // A node that the pass adds; operands are values of the new graph.
  std::vector<ValueId> make(const ops::Op& op, std::vector<ValueId> inputs, const Site& site, std::string_view name);
  ValueId make_one(const ops::Op& op, std::vector<ValueId> inputs, const Site& site, std::string_view name) {
    return make(op, std::move(inputs), site, name)[0];
  }
  // The node that was added last.
  Node& newest() { return to_.nodes[NodeId{static_cast<std::uint32_t>(to_.nodes.size() - 1)}]; }

  // The new graph. Where values were made anew, its parameters, results and scalars are what stands for those of the old one.
  Graph take();

 private:
  const Graph& from_;
  Values values_;
  Graph to_;
  std::vector<ValueId> now_;  // by value of the old graph
};

}  // namespace plimsoll::graph

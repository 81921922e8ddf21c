#include "lowering/offload.h"

#include "base/error.h"

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;
using ops::Tier;

bool is_update(const Node& node) {
  return std::holds_alternative<ops::AdamUpdate>(node.op) || std::holds_alternative<ops::SgdUpdate>(node.op);
}

// The update alone: the weight in the model's type is made of the master afterwards.
ops::Op without_copy(ops::Op op) {
  if (auto* adam = std::get_if<ops::AdamUpdate>(&op)) adam->copy = false;
  if (auto* sgd = std::get_if<ops::SgdUpdate>(&op)) sgd->copy = false;
  return op;
}

// The updates of one block, and what belongs to them.
struct Stretch {
  std::vector<Node> before;  // views
  std::vector<Node> updates;
  std::vector<Node> after;         // collectives
  std::vector<ValueId> gradients;  // in the host's memory, one per update
};

class Offload {
 public:
  explicit Offload(const Graph& old) : old_(old), new_(old) { new_.nodes = {}; }

  Graph run() {
    for (const graph::Parameter& parameter : old_.parameters) {
      if (parameter.frozen) continue;
      PLIMSOLL_CHECK(parameter.master != parameter.weight, "{} has no master", parameter.name);
      new_.values[parameter.master].tier = Tier::host;
      for (ValueId state : parameter.states) new_.values[state].tier = Tier::host;
    }
    std::uint32_t next = 0;
    const auto copy_until = [&](auto stops) {
      for (; next < old_.nodes.size() && !stops(old_.nodes[NodeId{next}]); ++next) add(old_.nodes[NodeId{next}]);
    };
    copy_until([](const Node& node) { return node.phase == Phase::update; });
    std::vector<Stretch> stretches;
    for (graph::BlockId block; next < old_.nodes.size() && old_.nodes[NodeId{next}].phase == Phase::update; ++next) {
      const Node& node = old_.nodes[NodeId{next}];
      if (stretches.empty() || node.block != block) stretches.emplace_back();
      block = node.block;
      Stretch& stretch = stretches.back();
      (is_update(node)                                    ? stretch.updates
       : std::holds_alternative<ops::Collective>(node.op) ? stretch.after
                                                          : stretch.before)
          .push_back(node);
    }
    for (std::size_t index = 0; index < stretches.size(); ++index) {
      if (index == 0) move_out(stretches[0]);
      if (index + 1 < stretches.size()) move_out(stretches[index + 1]);
      update(stretches[index]);
    }
    copy_until([](const Node&) { return false; });
    return std::move(new_);
  }

 private:
  void add(Node node) {
    const NodeId id = new_.nodes.next_id();
    for (ValueId output : node.outputs) new_.values[output].producer = id;
    new_.nodes.add(std::move(node));
  }

  ValueId moved_out(ValueId value, graph::BlockId block) {
    return new_.add_node(ops::Move{.from = Tier::device, .to = Tier::host}, {value}, block, Phase::update,
                         old_.values[value].name + ".host")[0];
  }

  void move_out(Stretch& stretch) {
    for (const Node& node : stretch.updates) {
      if (!scalars_.valid()) scalars_ = moved_out(node.inputs[0], node.block);
      stretch.gradients.push_back(moved_out(node.inputs[1], node.block));
    }
  }

  void update(const Stretch& stretch) {
    for (const Node& node : stretch.before) add(node);
    std::vector<ValueId> weights;
    for (std::size_t index = 0; index < stretch.updates.size(); ++index) {
      Node node = stretch.updates[index];
      node.op = without_copy(node.op);
      node.inputs[0] = scalars_;
      node.inputs[1] = stretch.gradients[index];
      const base::TensorType target = old_.values[node.inputs.back()].type;
      node.inputs.pop_back();
      node.outputs.pop_back();
      for (ValueId output : node.outputs) new_.values[output].tier = Tier::host;
      weights.push_back(node.outputs[0]);
      const graph::BlockId block = node.block;
      add(std::move(node));
      if (target.dtype == base::DType::f32) continue;
      const std::string name = old_.values[stretch.updates[index].outputs.back()].name + ".host";
      weights.back() = new_.add_node(ops::Cast{.dtype = target.dtype}, {weights.back()}, block, Phase::update, name)[0];
      new_.values[weights.back()].tier = Tier::host;
    }
    for (std::size_t index = 0; index < stretch.updates.size(); ++index) {
      const Node& node = stretch.updates[index];
      add({.op = ops::Move{.from = Tier::host, .to = Tier::device, .into = true},
           .inputs = {weights[index], node.inputs.back()},
           .outputs = {node.outputs.back()},
           .block = node.block,
           .phase = Phase::update});
    }
    for (const Node& node : stretch.after) add(node);
  }

  const Graph& old_;
  Graph new_;
  ValueId scalars_;  // in the host's memory
};

}  // namespace

Graph offload_optimizer(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (is_update(node)) return Offload(graph).run();
  }
  return graph;
}

}  // namespace plimsoll::lowering

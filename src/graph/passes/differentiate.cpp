// Reverse-mode differentiation by each operator's own adjoint.
//
// Nodes are visited from the loss back; each node's adjoint gets the gradients that reached its outputs and gives one
// per input. A second gradient of the same value is added by the operator that makes it where that can accumulate (a
// tied table), else by an add.
#include <algorithm>

#include "graph/passes/passes.h"

namespace plimsoll::graph {

namespace {

class Differentiator final : public ops::AdjointBuilder {
 public:
  Differentiator(Graph& graph, bool accumulates)
      : graph_(graph), accumulates_(accumulates), wanted_(graph.values.size(), false), grads_(graph.values.size()) {
    for (const Parameter& parameter : graph_.parameters) wanted_[parameter.weight.index] = !parameter.frozen;
    for (const Node& node : graph_.nodes) {
      const bool any = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return wanted_[id.index]; });
      for (ValueId id : node.outputs) wanted_[id.index] = any;
    }
  }

  void run() {
    const ValueId loss = graph_.results.at(0);
    const auto forward_count = static_cast<std::uint32_t>(graph_.nodes.size());
    for (std::uint32_t index = forward_count; index-- > 0;) {
      const Node node = graph_.nodes[NodeId{index}];
      if (node.phase != Phase::forward) continue;
      std::vector<ValueId> output_grads;
      bool reached = false;
      for (ValueId id : node.outputs) {
        output_grads.push_back(grad(id));
        reached = reached || id == loss || output_grads.back().valid();
      }
      if (reached && wanted_[node.outputs[0].index]) visit(node, output_grads);
    }
    for (Parameter& parameter : graph_.parameters) {
      if (parameter.frozen) continue;
      parameter.gradient = grad(parameter.weight);
      if (parameter.gradient.valid()) graph_.values[parameter.gradient].name = "grad." + parameter.name;
      if (!parameter.gradient.valid()) {
        base::not_legal("parameter {} does not take part in the loss; freeze it or use it", parameter.name);
      }
    }
  }

  const TensorType& type(ValueId value) const override { return graph_.values[value].type; }
  bool wants_grad(ValueId value) const override { return value.index < wanted_.size() && wanted_[value.index]; }
  base::DType grad_dtype(ValueId parameter) const override { return gradient_dtype(type(parameter), accumulates_); }
  ValueId scalars() const override { return graph_.scalars; }

  std::vector<ValueId> emit(const ops::Op& op, std::vector<ValueId> inputs) override {
    const std::string name = fmt::format("{}.{}", block_name_, ops::name_of(op));
    return graph_.add_node(op, std::move(inputs), block_, Phase::backward, name);
  }

 private:
  ValueId grad(ValueId value) const { return value.index < grads_.size() ? grads_[value.index] : ValueId{}; }

  void visit(const Node& node, const std::vector<ValueId>& output_grads) {
    const auto adjoint = ops::definition_of(node.op).adjoint;
    if (adjoint == nullptr) base::not_legal("[{}] has no gradient", ops::name_of(node.op));
    block_ = node.block;
    block_name_ = "grad." + graph_.values[node.outputs[0]].name;
    const std::vector<ValueId> input_grads =
        adjoint({.op = node.op, .inputs = node.inputs, .outputs = node.outputs, .output_grads = output_grads}, *this);
    for (std::size_t index = 0; index < node.inputs.size(); ++index) {
      if (input_grads[index].valid() && wanted_[node.inputs[index].index]) add_grad(node.inputs[index], input_grads[index]);
    }
  }

  void add_grad(ValueId value, ValueId contribution) {
    ValueId& known = grads_[value.index];
    if (!known.valid()) {
      known = contribution;
    } else if (const ValueId accumulated = accumulate_in_place(known, contribution); accumulated.valid()) {
      known = accumulated;
    } else if (const ValueId sum = add_in_place(known, contribution); sum.valid()) {
      known = sum;
    } else {
      known = emit(ops::Add{}, {known, contribution})[0];
    }
  }

  // Lets the node that made `contribution` add the gradient known so far, if it has such a form.
  ValueId add_in_place(ValueId known, ValueId contribution) {
    Node& node = graph_.nodes[graph_.values[contribution].producer];
    const auto adding = ops::definition_of(node.op).adding;
    if (adding == nullptr || node.phase != Phase::backward || node.outputs[0] != contribution) return {};
    const std::optional<ops::Op> form = adding(node.op);
    // The contribution must have had no reader yet: only the newest node can be one that nobody has read.
    if (!form || graph_.values[contribution].producer.index + 1 != graph_.nodes.size()) return {};
    node.op = *form;
    node.inputs.push_back(known);
    return contribution;
  }

  // Turns the node that made `contribution` into its accumulating form, if that is its only parameter gradient.
  ValueId accumulate_in_place(ValueId known, ValueId contribution) {
    Node& node = graph_.nodes[graph_.values[contribution].producer];
    const ops::Definition& definition = ops::definition_of(node.op);
    if (definition.accumulating == nullptr || definition.accumulated_outputs(node.op).size() != 1 ||
        node.outputs[static_cast<std::size_t>(definition.accumulated_outputs(node.op)[0])] != contribution ||
        type(known) != type(contribution)) {
      return {};
    }
    const std::optional<ops::Op> accumulating = definition.accumulating(node.op);
    if (!accumulating) return {};
    node.op = *accumulating;
    node.inputs.push_back(known);
    return contribution;
  }

  Graph& graph_;
  bool accumulates_;
  std::vector<bool> wanted_;
  std::vector<ValueId> grads_;
  BlockId block_;
  std::string block_name_;
};

}  // namespace

void differentiate(Graph& graph, bool accumulates) { Differentiator(graph, accumulates).run(); }

}  // namespace plimsoll::graph

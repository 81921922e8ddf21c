// Each operator's own adjoint, from the objectives back.
//
// Each node's adjoint gets the gradients that reached its outputs and gives one per input. A second gradient of the same value is added
// by the operator that makes it where that can accumulate (a tied table), else by an add.
#include "graph/passes/differentiate.h"

#include <algorithm>

#include "graph/passes/passes.h"

namespace plimsoll::graph {

namespace {

class Differentiator final : public ops::AdjointBuilder {
 public:
  Differentiator(Graph& graph, std::span<const ValueId> by, bool accumulates)
      : graph_(graph),
        accumulates_(accumulates),
        nodes_before_(static_cast<std::uint32_t>(graph.nodes.size())),
        wanted_(graph.values.size(), false),
        losses_(graph.values.size(), false),
        grads_(graph.values.size()),
        taken_(graph.values.size(), 0),
        prefix_(unused_prefix(graph)) {
    for (ValueId id : by) wanted_[id.index] = true;
    for (const Node& node : graph_.nodes) {
      for (ValueId id : node.inputs) take(id);
      if (!wants_any(node.inputs)) continue;
      for (ValueId id : node.outputs) wanted_[id.index] = true;
    }
    for (ValueId id : graph_.results) take(id);
  }

  void add_objective(const Objective& objective) {
    const Value root = graph_.values[objective.root];
    const Node* node = root.producer.valid() ? &graph_.nodes[root.producer] : nullptr;
    block_ = root.block;
    block_name_ = prefix_ + root.name;
    const bool loss = node != nullptr && node->outputs[0] == objective.root && ops::definition_of(node->op).counts_itself;
    if (objective.weight.valid()) {
      if (type(objective.weight) != root.type || objective.factor != 1.0) {
        base::bad_input("differentiate: {} is {} and has a weight of {} and a factor of {}; expected a weight of its type and no factor",
                        root.name, base::to_string(root.type), base::to_string(type(objective.weight)), objective.factor);
      }
      take(objective.weight);
      add_grad(objective.root, objective.weight);
    } else if (!loss) {
      base::bad_input("differentiate: {} is no loss and has no weight; expected a weight of type {}", root.name,
                      base::to_string(root.type));
    } else if (objective.factor != 1.0) {
      add_grad(objective.root, emit(ops::LossWeights{.rows = root.type.shape.elements(), .factor = objective.factor}, {scalars()})[0]);
    } else {
      losses_[objective.root.index] = true;
    }
  }

  void run() {
    for (std::uint32_t index = nodes_before_; index-- > 0;) {
      const Node node = graph_.nodes[NodeId{index}];
      if (!wants_any(node.inputs)) continue;
      std::vector<ValueId> output_grads;
      for (ValueId id : node.outputs) output_grads.push_back(grad(id));
      const bool reached = std::any_of(output_grads.begin(), output_grads.end(), [](ValueId id) { return id.valid(); });
      const bool loss = losses_[node.outputs[0].index];
      if (loss && reached) {
        base::bad_input("differentiate: {} counts as a loss and in another way; expected one weight for both",
                        graph_.values[node.outputs[0]].name);
      }
      if (loss || reached) visit(node, output_grads);
    }
  }

  ValueId grad(ValueId value) const { return value.index < grads_.size() ? grads_[value.index] : ValueId{}; }

  const TensorType& type(ValueId value) const override { return graph_.values[value].type; }
  bool wants_grad(ValueId value) const override { return value.index < wanted_.size() && wanted_[value.index]; }
  base::DType grad_dtype(ValueId parameter) const override { return gradient_dtype(type(parameter), accumulates_); }
  ValueId scalars() const override { return graph_.scalars; }

  std::vector<ValueId> emit(const ops::Op& op, std::vector<ValueId> inputs) override {
    for (ValueId id : inputs) take(id);
    const std::string name = fmt::format("{}.{}", block_name_, ops::name_of(op));
    return graph_.add_node(op, std::move(inputs), block_, Phase::backward, name);
  }

 private:
  // "grad.", or with a number where the graph has been differentiated before.
  static std::string unused_prefix(const Graph& graph) {
    for (int order = 1;; ++order) {
      const std::string prefix = order == 1 ? "grad." : fmt::format("grad{}.", order);
      if (std::none_of(graph.values.begin(), graph.values.end(), [&](const Value& value) { return value.name.starts_with(prefix); }))
        return prefix;
    }
  }

  bool wants_any(const std::vector<ValueId>& values) const {
    return std::any_of(values.begin(), values.end(), [&](ValueId id) { return wanted_[id.index]; });
  }

  // Somebody reads the value, or keeps it as a gradient: nothing may be added to it in its place.
  void take(ValueId id) {
    if (id.index >= taken_.size()) taken_.resize(id.index + 1, 0);
    ++taken_[id.index];
  }
  int taken(ValueId id) const { return id.index < taken_.size() ? taken_[id.index] : 0; }

  void visit(const Node& node, const std::vector<ValueId>& output_grads) {
    const ops::Definition& definition = ops::definition_of(node.op);
    if (definition.adjoint == nullptr) base::not_legal("[{}] has no gradient: {}", ops::name_of(node.op), definition.no_adjoint);
    block_ = node.block;
    block_name_ = prefix_ + graph_.values[node.outputs[0]].name;
    const std::vector<ValueId> input_grads =
        definition.adjoint({.op = node.op, .inputs = node.inputs, .outputs = node.outputs, .output_grads = output_grads}, *this);
    for (std::size_t index = 0; index < node.inputs.size(); ++index) {
      if (!input_grads[index].valid() || !wanted_[node.inputs[index].index]) continue;
      const bool alone = std::count(input_grads.begin(), input_grads.end(), input_grads[index]) == 1;
      add_grad(node.inputs[index], input_grads[index], alone);
    }
  }

  // `alone`: no other value gets the same contribution.
  void add_grad(ValueId value, ValueId contribution, bool alone = false) {
    ValueId& known = grads_[value.index];
    if (!known.valid()) {
      known = contribution;
    } else if (const ValueId added = alone ? add_where_made(known, contribution) : ValueId{}; added.valid()) {
      known = added;
    } else {
      known = emit(ops::Add{}, {known, contribution})[0];
    }
    take(known);
  }

  // Lets the node that made `contribution` add the gradient known so far, if it has such a form and nobody has read it yet.
  ValueId add_where_made(ValueId known, ValueId contribution) {
    const NodeId id = graph_.values[contribution].producer;
    if (!id.valid() || id.index < nodes_before_ || taken(contribution) > 0) return {};
    Node& node = graph_.nodes[id];
    std::optional<ops::Op> form = accumulating_form(node, known, contribution);
    if (!form) form = adding_form(node, contribution);
    if (!form) return {};
    node.op = *form;
    node.inputs.push_back(known);
    take(known);
    return contribution;
  }

  // In the memory of what is known so far, where that is the node's only parameter gradient and nobody else has a use for what is known.
  std::optional<ops::Op> accumulating_form(const Node& node, ValueId known, ValueId contribution) const {
    const ops::Definition& definition = ops::definition_of(node.op);
    const bool only_here = graph_.values[known].role == Role::computed && taken(known) == 1;
    if (definition.accumulating == nullptr || !only_here || type(known) != type(contribution)) return std::nullopt;
    const std::vector<int> outputs = definition.accumulated_outputs(node.op);
    if (outputs.size() != 1 || node.outputs[static_cast<std::size_t>(outputs[0])] != contribution) return std::nullopt;
    return definition.accumulating(node.op);
  }

  // Behind its other operands. Only the newest node is sure to come behind what is known.
  std::optional<ops::Op> adding_form(const Node& node, ValueId contribution) const {
    const auto adding = ops::definition_of(node.op).adding;
    const bool newest = graph_.values[contribution].producer.index + 1 == graph_.nodes.size();
    if (adding == nullptr || node.outputs[0] != contribution || !newest) return std::nullopt;
    return adding(node.op);
  }

  Graph& graph_;
  bool accumulates_;
  std::uint32_t nodes_before_;
  std::vector<bool> wanted_;  // by value that was there before, as the next two
  std::vector<bool> losses_;  // an objective that counts itself
  std::vector<ValueId> grads_;
  std::vector<int> taken_;  // by value: how many read or keep it
  std::string prefix_;
  BlockId block_;
  std::string block_name_;
};

}  // namespace

std::vector<ValueId> differentiate(Graph& graph, std::span<const Objective> of, std::span<const ValueId> by, bool accumulates) {
  Differentiator differentiator(graph, by, accumulates);
  for (const Objective& objective : of) differentiator.add_objective(objective);
  differentiator.run();
  std::vector<ValueId> gradients;
  for (ValueId id : by) gradients.push_back(differentiator.grad(id));
  return gradients;
}

namespace {

// Losses that were written with ordinary operators do not know by themselves what each counts.
Objective losses_of(Graph& graph) {
  Objective losses{.root = graph.results.at(0)};
  const Value root = graph.values[losses.root];
  const Node& node = graph.nodes[root.producer];
  if (ops::definition_of(node.op).counts_itself && node.outputs[0] == losses.root) return losses;
  losses.weight = graph.add_node(ops::LossWeights{.rows = root.type.shape.elements()}, {graph.scalars}, root.block, Phase::backward,
                                 root.name + ".weights")[0];
  return losses;
}

}  // namespace

void append_backward(Graph& graph, bool accumulates) {
  std::vector<Parameter*> trained;
  std::vector<ValueId> weights;
  for (Parameter& parameter : graph.parameters) {
    if (parameter.frozen) continue;
    trained.push_back(&parameter);
    weights.push_back(parameter.weight);
  }
  const Objective losses = losses_of(graph);
  const std::vector<ValueId> gradients = differentiate(graph, {&losses, 1}, weights, accumulates);
  for (std::size_t index = 0; index < trained.size(); ++index) {
    Parameter& parameter = *trained[index];
    parameter.gradient = gradients[index];
    if (!parameter.gradient.valid()) base::not_legal("parameter {} does not take part in the loss; freeze it or use it", parameter.name);
    graph.values[parameter.gradient].name = "grad." + parameter.name;
  }
}

}  // namespace plimsoll::graph

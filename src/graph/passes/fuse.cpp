// The fusions. Each looks for a producer and its consumer, puts the fused operator in the place of one of them
// and erases the other.
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/rewrite.h"

namespace plimsoll::graph {

namespace {

std::vector<std::vector<std::uint32_t>> uses_of(const Graph& graph) {
  std::vector<std::vector<std::uint32_t>> uses(graph.values.size());
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    for (ValueId id : graph.nodes[NodeId{index}].inputs) uses[id.index].push_back(index);
  }
  return uses;
}

// The node that makes `value`, if it is an Attributes operator of the same block.
template <typename Attributes>
const Node* producer_of(const Graph& graph, ValueId value, BlockId block) {
  const NodeId id = graph.values[value].producer;
  if (!id.valid()) return nullptr;
  const Node& node = graph.nodes[id];
  return std::holds_alternative<Attributes>(node.op) && node.block == block ? &node : nullptr;
}

bool is_result(const Graph& graph, ValueId value) {
  return std::find(graph.results.begin(), graph.results.end(), value) != graph.results.end();
}

}  // namespace

void erase_nodes(Graph& graph, const std::vector<bool>& dead) {
  base::IdVector<NodeId, Node> kept;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    if (!dead[index]) kept.add(std::move(graph.nodes[NodeId{index}]));
  }
  graph.nodes = std::move(kept);
  renew_producers(graph);
}

void fuse_linear_activation(Graph& graph) {
  std::vector<bool> dead(graph.nodes.size(), false);
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[NodeId{index}];
    const auto* activation = std::get_if<ops::Activation>(&node.op);
    if (activation == nullptr) continue;
    const Node* linear = producer_of<ops::Linear>(graph, node.inputs[0], node.block);
    if (linear == nullptr || std::get<ops::Linear>(linear->op).activation != ops::ActivationKind::none) continue;
    Node& fused = graph.nodes[graph.values[node.inputs[0]].producer];
    std::get<ops::Linear>(fused.op).activation = activation->kind;
    fused.outputs = {node.outputs[0], fused.outputs[0]};
    dead[index] = true;
  }
  erase_nodes(graph, dead);
}

void fuse_activation_grad(Graph& graph) {
  const auto uses = uses_of(graph);
  std::vector<bool> dead(graph.nodes.size(), false);
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[NodeId{index}];
    const auto* gradient = std::get_if<ops::ActivationGrad>(&node.op);
    if (gradient == nullptr || uses[node.inputs[0].index].size() != 1) continue;
    const Node* linear = producer_of<ops::LinearGradInput>(graph, node.inputs[0], node.block);
    if (linear == nullptr || linear->phase != node.phase) continue;
    // What the activation was applied to is of the forward pass: it is there when the product is made.
    Node& fused = graph.nodes[graph.values[node.inputs[0]].producer];
    fused.op = ops::LinearGradInput{.activation = gradient->kind};
    fused.inputs.push_back(node.inputs[1]);
    fused.outputs = node.outputs;
    dead[index] = true;
  }
  erase_nodes(graph, dead);
}

void fuse_residual_norm(Graph& graph) {
  const auto uses = uses_of(graph);
  std::vector<bool> dead(graph.nodes.size(), false);
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    Node& node = graph.nodes[NodeId{index}];
    const auto* norm = std::get_if<ops::Norm>(&node.op);
    if (norm == nullptr || norm->residual) continue;
    const ValueId sum = node.inputs[0];
    const Node* residual = producer_of<ops::Residual>(graph, sum, node.block);
    if (residual == nullptr || *std::min_element(uses[sum.index].begin(), uses[sum.index].end()) != index) continue;
    const auto& attributes = std::get<ops::Residual>(residual->op);
    std::vector<ValueId> inputs{residual->inputs[0], residual->inputs[1]};
    inputs.insert(inputs.end(), node.inputs.begin() + 1, node.inputs.end());
    inputs.insert(inputs.end(), residual->inputs.begin() + 2, residual->inputs.end());
    ops::Norm fused = *norm;
    fused.residual = true;
    fused.rate = attributes.rate;
    fused.site = attributes.site;
    dead[graph.values[sum].producer.index] = true;
    node.op = fused;
    node.inputs = std::move(inputs);
    node.outputs.insert(node.outputs.begin(), sum);
  }
  erase_nodes(graph, dead);
}

base::DType gradient_dtype(const TensorType& parameter, bool accumulates) { return accumulates ? base::DType::f32 : parameter.dtype; }

void fuse_head_loss(Graph& graph, const HeadFusion& fusion) {
  const auto uses = uses_of(graph);
  std::vector<bool> dead(graph.nodes.size(), false);
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const Node loss = graph.nodes[NodeId{index}];
    if (!std::holds_alternative<ops::CrossEntropy>(loss.op)) continue;
    const ValueId logits = loss.inputs[0];
    const Node* linear = producer_of<ops::Linear>(graph, logits, loss.block);
    if (linear == nullptr || uses[logits.index].size() != 1 || is_result(graph, logits) || !uses[loss.outputs[1].index].empty()) continue;
    const bool bias = std::get<ops::Linear>(linear->op).bias;
    std::vector<ValueId> inputs = linear->inputs;
    inputs.push_back(loss.inputs[1]);
    inputs.push_back(graph.scalars);
    const base::DType dtype = gradient_dtype(graph.values[inputs[1]].type, fusion.accumulates);
    const ops::Op op = ops::HeadLoss{.bias = bias, .gradients = fusion.gradients, .dtype = dtype};
    const std::vector<TensorType> types = ops::definition_of(op).infer(op, graph.types(inputs));
    std::vector<ValueId> outputs{loss.outputs[0]};
    for (std::size_t output = 1; output < types.size(); ++output) {
      outputs.push_back(graph.add_value({.name = fmt::format("head.grad.{}", output), .type = types[output], .block = loss.block}));
    }
    dead[graph.values[logits].producer.index] = true;
    graph.nodes[NodeId{index}] = {.op = op, .inputs = inputs, .outputs = outputs, .block = loss.block, .phase = loss.phase};
  }
  erase_nodes(graph, dead);
}

}  // namespace plimsoll::graph

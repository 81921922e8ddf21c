// Linear layers on 8-bit operands: weights and activations in e4m3, gradients in e5m2, sums in f32, results in bf16.
//
// Works on the graph with its backward pass, where a layer is three products of three tensors: each of the tensors is quantized once,
// where the first product needs it, and every product takes it the way it lies best. What the backward pass keeps of a layer's input
// is then its 8-bit transpose. An activation between two layers is applied where its result is quantized, and so are its slopes in the
// backward pass; bias gradients are summed on the same way over memory.
#include <map>

#include "graph/passes/passes.h"
#include "graph/rewrite.h"

namespace plimsoll::graph {

namespace {

using base::DType;

constexpr std::int64_t kUnit = 16;  // of all extents of a product

struct Quantized {
  ValueId q;
  ValueId transposed;
  ValueId scale;
};

class Quantizer {
 public:
  Quantizer(Graph& graph, std::int64_t history) : graph_(graph), history_(history), old_(std::move(graph.nodes)) {
    graph_.nodes = {};
    for (const Node& node : old_) {
      for (std::size_t operand = 0; operand < node.inputs.size(); ++operand) {
        ++uses_[node.inputs[operand].index];
        if (takes(node) && operand < 2) ++products_[node.inputs[operand].index];
      }
    }
    for (const Node& node : old_) {
      const auto* gradient = std::get_if<ops::BiasGrad>(&node.op);
      if (gradient != nullptr && !gradient->accumulate && products_.contains(node.inputs[0].index)) biases_[node.inputs[0].index] = &node;
    }
  }

  void run() {
    bool any = false;
    for (const Node& node : old_) {
      end_of_block(node);
      if (sums_with_others(node) || waits(node)) continue;
      if (!takes(node)) {
        keep(node);
        continue;
      }
      any = true;
      if (std::holds_alternative<ops::Linear>(node.op)) {
        forward(node);
      } else if (std::holds_alternative<ops::LinearGradInput>(node.op)) {
        const Quantized dy = quantized(node.inputs[0], DType::f8e5m2, node);
        const Quantized w = quantized(node.inputs[1], DType::f8e4m3, node);
        product(node, {.dtype = type(node.outputs[0]).dtype}, {dy.q, w.transposed, dy.scale, w.scale}, node.outputs[0]);
      } else {
        const auto& gradient = std::get<ops::LinearGradWeight>(node.op);
        const Quantized dy = quantized(node.inputs[0], DType::f8e5m2, node);
        const Quantized x = quantized(node.inputs[1], DType::f8e4m3, node);
        std::vector<ValueId> inputs{dy.transposed, x.transposed, dy.scale, x.scale};
        if (gradient.accumulate) inputs.push_back(node.inputs[2]);
        product(node, {.dtype = gradient.dtype, .accumulate = gradient.accumulate}, inputs, node.outputs[0]);
      }
    }
    note_amaxes();
    renew_producers(graph_);
    if (!any) base::not_legal("\"precision\" is \"fp8\", but no linear layer has a width and a number of rows that {} divides", kUnit);
  }

 private:
  const TensorType& type(ValueId value) const { return graph_.values[value].type; }

  bool fits(ValueId value) const {
    const TensorType& known = type(value);
    return known.dtype == DType::bf16 && known.shape.rows() % kUnit == 0 && known.shape[-1] % kUnit == 0;
  }

  bool takes(const Node& node) const {
    const bool linear = std::holds_alternative<ops::Linear>(node.op) || std::holds_alternative<ops::LinearGradInput>(node.op) ||
                        std::holds_alternative<ops::LinearGradWeight>(node.op);
    const bool head = node.block.index + 1 == graph_.blocks.size();  // logits are too sensitive
    return linear && !head && fits(node.inputs[0]) && fits(node.inputs[1]);
  }

  bool sums_with_others(const Node& node) const {
    const auto found = node.inputs.empty() ? biases_.end() : biases_.find(node.inputs[0].index);
    return found != biases_.end() && found->second == &node;
  }

  // Nobody but products and a bias gradient reads it.
  bool only_quantized(ValueId value) const {
    const auto count = [&](const std::map<std::uint32_t, int>& of) { return of.contains(value.index) ? of.at(value.index) : 0; };
    return count(products_) > 0 && count(uses_) == count(products_) + static_cast<int>(biases_.count(value.index));
  }

  // The slopes of an activation, where they are applied on the way.
  bool waits(const Node& node) {
    const auto* slopes = std::get_if<ops::ActivationGrad>(&node.op);
    if (slopes == nullptr || !only_quantized(node.outputs[0])) return false;
    pending_[node.outputs[0].index] = {slopes->kind, node.inputs};
    return true;
  }

  void keep(const Node& node) {
    const NodeId id = graph_.nodes.next_id();
    for (ValueId output : node.outputs) graph_.values[output].producer = id;
    graph_.nodes.add(node);
  }

  void product(const Node& at, const ops::ScaledLinear& op, std::vector<ValueId> inputs, ValueId output) {
    keep({.op = op, .inputs = std::move(inputs), .outputs = {output}, .block = at.block, .phase = at.phase, .turn = at.turn});
  }

  void forward(const Node& node) {
    const auto& linear = std::get<ops::Linear>(node.op);
    const Quantized x = quantized(node.inputs[0], DType::f8e4m3, node);
    const Quantized w = quantized(node.inputs[1], DType::f8e4m3, node);
    std::vector<ValueId> inputs{x.q, w.q, x.scale, w.scale};
    if (linear.bias) inputs.push_back(node.inputs[2]);
    const bool activates = linear.activation != ops::ActivationKind::none;
    product(node, {.bias = linear.bias, .dtype = type(node.outputs[0]).dtype}, inputs, node.outputs[activates ? 1 : 0]);
    if (!activates) return;
    const ValueId y = node.outputs[0];
    if (only_quantized(y)) {
      pending_[y.index] = {linear.activation, {node.outputs[1]}};
    } else {
      keep({.op = ops::Activation{.kind = linear.activation},
            .inputs = {node.outputs[1]},
            .outputs = {y},
            .block = node.block,
            .phase = node.phase});
    }
  }

  Quantized quantized(ValueId value, DType dtype, const Node& at) {
    const auto [found, fresh] = made_.try_emplace(value.index);
    if (!fresh) return found->second;
    ops::Quantize op{.dtype = dtype, .history = history_};
    std::vector<ValueId> inputs{value};
    if (const auto pending = pending_.find(value.index); pending != pending_.end()) {
      op.activation = pending->second.kind;
      op.slopes = pending->second.of.size() == 2;
      inputs = pending->second.of;
    }
    const auto bias = biases_.find(value.index);
    if (bias != biases_.end()) {
      op.sums = true;
      op.sums_dtype = std::get<ops::BiasGrad>(bias->second->op).dtype;
    }
    const std::string name = graph_.values[value].name + ".8bit";
    if (history_ > 0) {
      inputs.push_back(graph_.add_value({.name = name + ".history",
                                         .type = {DType::f32, base::Shape{history_}},
                                         .role = Role::state,
                                         .block = at.block,
                                         .init = {.kind = Init::Kind::zeros}}));
    }
    const std::vector<ValueId> outputs = graph_.add_node(op, inputs, at.block, at.phase, name);
    if (history_ > 0) amaxes_.push_back({at.block, inputs.back(), outputs[3]});
    if (bias != biases_.end()) {
      const NodeId made{static_cast<std::uint32_t>(graph_.nodes.size() - 1)};
      graph_.nodes[made].outputs[4] = bias->second->outputs[0];
      graph_.values[bias->second->outputs[0]].producer = made;
    }
    return found->second = {outputs[0], outputs[1], outputs[2]};
  }

  // Histories change when the backward pass of their block is over: a block that is made again before it sees what it saw first.
  struct Amax {
    BlockId block;
    ValueId history;
    ValueId amax;
  };

  void end_of_block(const Node& next) {
    if (next.phase == Phase::backward && in_backward_ && next.block == block_) return;
    if (in_backward_) note_amaxes();
    in_backward_ = next.phase == Phase::backward;
    block_ = next.block;
  }

  void note_amaxes() {
    if (!in_backward_) return;
    std::vector<Amax> others;
    for (const Amax& amax : amaxes_) {
      if (amax.block == block_) {
        graph_.add_node(ops::NoteAmax{}, {amax.history, amax.amax}, block_, Phase::backward, graph_.values[amax.history].name + ".new");
      } else {
        others.push_back(amax);
      }
    }
    amaxes_ = std::move(others);
  }

  Graph& graph_;
  std::int64_t history_;
  base::IdVector<NodeId, Node> old_;
  std::map<std::uint32_t, int> uses_;            // value -> operands that it is
  std::map<std::uint32_t, int> products_;        // of those, operands of 8-bit products
  std::map<std::uint32_t, const Node*> biases_;  // value -> the node that sums it, where its quantization does that
  struct Pending {
    ops::ActivationKind kind;
    std::vector<ValueId> of;
  };
  std::map<std::uint32_t, Pending> pending_;  // value -> how its quantization makes it of others
  std::map<std::uint32_t, Quantized> made_;
  std::vector<Amax> amaxes_;
  bool in_backward_ = false;
  BlockId block_;
};

}  // namespace

void quantize_linear(Graph& graph, std::int64_t history) { Quantizer(graph, history).run(); }

}  // namespace plimsoll::graph

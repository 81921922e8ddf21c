#include "lowering/layout/storage.h"

#include <algorithm>
#include <numeric>

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Role;
using graph::ValueId;

plan::BufferKind kind_of(Role role) {
  switch (role) {
    case Role::input: return plan::BufferKind::input;
    case Role::constant: return plan::BufferKind::constant;
    case Role::parameter: return plan::BufferKind::parameter;
    case Role::master: return plan::BufferKind::master;
    case Role::state: return plan::BufferKind::state;
    case Role::scalars: return plan::BufferKind::scalars;
    case Role::gradient: return plan::BufferKind::gradient;
    case Role::computed: return plan::BufferKind::activation;
  }
  return plan::BufferKind::activation;
}

class Sharing {
 public:
  explicit Sharing(const Graph& graph)
      : graph_(graph), parent_(graph.values.size()), last_use_(graph.values.size(), -1), pinned_(graph.values.size(), false) {
    std::iota(parent_.begin(), parent_.end(), 0u);
    for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
      for (ValueId id : graph.nodes[NodeId{index}].inputs) last_use_[id.index] = static_cast<std::int64_t>(index);
    }
    for (ValueId id : graph.results) pinned_[id.index] = true;
    for (std::uint32_t index = 0; index < graph.values.size(); ++index)
      pinned_[index] =
          pinned_[index] || graph.values[ValueId{index}].role != Role::computed || graph.values[ValueId{index}].begins_gradient;
    for (const graph::Parameter& parameter : graph.parameters) {
      if (parameter.gradient.valid()) pinned_[parameter.gradient.index] = true;
    }
    // What sees a part of something must not be taken for the whole of it.
    for (const Node& node : graph.nodes) {
      if (ops::is_view(node.op)) pinned_[node.outputs[0].index] = pinned_[node.inputs[0].index];
      for (const ops::Alias& alias : ops::aliases_of(node.op)) {
        if (alias.part) pinned_[node.outputs[static_cast<std::size_t>(alias.output)].index] = true;
      }
    }
  }

  Storages run() {
    for (std::uint32_t index = 0; index < graph_.nodes.size(); ++index) merge(NodeId{index}, true);
    for (std::uint32_t index = 0; index < graph_.values.size(); ++index) {
      const ValueId other = graph_.values[ValueId{index}].in_memory_of;
      if (other.valid()) unite(index, other.index);
    }
    // Accumulation chains of gradients are complete now, and none of their links may be taken for something else.
    for (const graph::Parameter& parameter : graph_.parameters) {
      if (parameter.gradient.valid()) gradient_roots_.push_back(find(parameter.gradient.index));
    }
    for (std::uint32_t index = 0; index < graph_.values.size(); ++index) {
      if (graph_.values[ValueId{index}].begins_gradient) gradient_roots_.push_back(find(index));
    }
    for (std::uint32_t index = 0; index < graph_.nodes.size(); ++index) merge(NodeId{index}, false);
    return collect();
  }

 private:
  std::uint32_t find(std::uint32_t index) {
    while (parent_[index] != index) index = parent_[index] = parent_[parent_[index]];
    return index;
  }

  bool is_gradient(std::uint32_t root) const {
    return std::find(gradient_roots_.begin(), gradient_roots_.end(), root) != gradient_roots_.end();
  }

  void merge(NodeId id, bool required) {
    const Node& node = graph_.nodes[id];
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      if (alias.required != required) continue;
      const ValueId input = node.inputs[static_cast<std::size_t>(alias.input)];
      const ValueId output = node.outputs[static_cast<std::size_t>(alias.output)];
      if (!required && !may_share(id, input, output)) continue;
      unite(input.index, output.index);
    }
  }

  // The older root survives: a persistent value keeps its name.
  void unite(std::uint32_t one, std::uint32_t other) {
    const std::uint32_t a = find(one);
    const std::uint32_t b = find(other);
    parent_[std::max(a, b)] = std::min(a, b);
  }

  bool may_share(NodeId id, ValueId input, ValueId output) {
    const Node& node = graph_.nodes[id];
    if (pinned_[input.index] || pinned_[output.index]) return false;
    if (is_gradient(find(input.index)) || is_gradient(find(output.index))) return false;
    if (last_use_[input.index] != static_cast<std::int64_t>(id.index)) return false;
    if (std::count(node.inputs.begin(), node.inputs.end(), input) != 1) return false;
    return graph_.values[input].type.bytes() == graph_.values[output].type.bytes();
  }

  // A part of a buffer stays one through everything that works in place; a shard, until all shards are gathered.
  std::vector<Storages::Start> starts() const {
    std::vector<Storages::Start> starts(graph_.values.size());
    for (const Node& node : graph_.nodes) {
      for (const ops::Alias& alias : ops::aliases_of(node.op)) {
        if (!alias.required) continue;
        const ValueId input = node.inputs[static_cast<std::size_t>(alias.input)];
        const ValueId output = node.outputs[static_cast<std::size_t>(alias.output)];
        const base::TensorType& made = graph_.values[output].type;
        Storages::Start& start = starts[output.index];
        start = starts[input.index];
        if (alias.own_shard) start.shard = base::Bytes{made.bytes() < graph_.values[input].type.bytes() ? made.bytes() : 0};
        start.offset += base::Bytes{alias.first * base::size_of(made.dtype)};
      }
    }
    return starts;
  }

  Storages collect() {
    Storages storages;
    storages.starts = starts();
    storages.of_value.resize(graph_.values.size());
    for (std::uint32_t index = 0; index < graph_.values.size(); ++index) {
      const std::uint32_t root = find(index);
      if (root == index) {
        const graph::Value& value = graph_.values[ValueId{index}];
        storages.of_value[index] =
            storages.all.add({.value = ValueId{index}, .type = value.type, .kind = kind_of(value.role), .tier = value.tier});
      } else {
        storages.of_value[index] = storages.of_value[root];
      }
      Storage& storage = storages.all[storages.of_value[index]];
      const graph::Value& value = graph_.values[ValueId{index}];
      PLIMSOLL_CHECK(storage.tier == value.tier, "{} shares memory with a value in another tier", value.name);
      storage.bytes = std::max(storage.bytes, base::Bytes{value.type.bytes()});
      storage.all_micro_batches = storage.all_micro_batches || value.all_micro_batches;
    }
    for (ValueId id : graph_.results) {
      Storage& storage = storages.all[storages.of(id)];
      storage.result = true;
      if (storage.kind != plan::BufferKind::activation) continue;
      storage.kind = plan::BufferKind::result;
      storage.value = id;  // its name is what it is found by
    }
    for (const graph::Parameter& parameter : graph_.parameters) {
      if (!parameter.gradient.valid()) continue;
      Storage& storage = storages.all[storages.of(parameter.gradient)];
      storage.kind = plan::BufferKind::gradient;
      storage.gradient = true;
      storage.all_micro_batches = !parameter.gradient_leaves;
      storage.value = parameter.gradient;
    }
    for (std::uint32_t index = 0; index < graph_.values.size(); ++index) {
      if (!graph_.values[ValueId{index}].begins_gradient) continue;
      Storage& storage = storages.all[storages.of_value[index]];
      storage.kind = plan::BufferKind::gradient;
      storage.gradient = true;
    }
    keep_beside_gradients(storages);
    return storages;
  }

  // An operator adds to all of its gradients or to none: one that nobody asked for is kept like those it is made with.
  void keep_beside_gradients(Storages& storages) const {
    for (const Node& node : graph_.nodes) {
      const ops::Definition& definition = ops::definition_of(node.op);
      if (definition.accumulated_outputs == nullptr) continue;
      const std::vector<int> outputs = definition.accumulated_outputs(node.op);
      const auto storage_of = [&](int output) -> Storage& {
        return storages.all[storages.of(node.outputs[static_cast<std::size_t>(output)])];
      };
      const auto asked = std::find_if(outputs.begin(), outputs.end(), [&](int output) { return storage_of(output).gradient; });
      if (asked == outputs.end()) continue;
      for (int output : outputs) {
        Storage& storage = storage_of(output);
        if (storage.gradient) continue;
        storage.kind = plan::BufferKind::gradient;
        storage.gradient = true;
        storage.all_micro_batches = storage_of(*asked).all_micro_batches;
      }
    }
  }

  const Graph& graph_;
  std::vector<std::uint32_t> parent_;
  std::vector<std::int64_t> last_use_;
  std::vector<bool> pinned_;
  std::vector<std::uint32_t> gradient_roots_;
};

}  // namespace

Storages share_storage(const graph::Graph& graph) { return Sharing(graph).run(); }

}  // namespace plimsoll::lowering

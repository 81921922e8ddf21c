#include "lowering/passes/block_chain.h"

#include <algorithm>
#include <map>
#include <set>

#include "plan/plan.h"

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;

// Operations that a machine does in the time it moves a byte: between 5 (two cores of a server) and 200 (a GPU). What it is for,
// telling matrix products from passes over memory, depends little on it.
constexpr double kOperationsPerByte = 10.0;

// Values that cost at most this many operations for each byte saved are cheap: norms, activations, gates, rotations - not matrix
// products and not attention over more than a few dozen positions.
constexpr double kCheap = 16.0;

double price_of(const ops::Op& op, ops::Types inputs, ops::Types outputs) {
  const ops::Work work = ops::definition_of(op).work(op, inputs, outputs);
  return work.flops + kOperationsPerByte * work.bytes;
}

std::int64_t bytes_of(const Graph& graph, ValueId id) {
  return base::round_up(base::Bytes{graph.values[id].type.bytes()}, plan::kAlignment).count;
}

std::int64_t bytes_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::int64_t sum = 0;
  for (ValueId id : ids) sum += bytes_of(graph, id);
  return sum;
}

// The value whose memory the node that makes `value` adds to or works in; invalid where it makes it anew.
ValueId in_place_of(const Graph& graph, ValueId value) {
  const NodeId producer = graph.values[value].producer;
  if (!producer.valid()) return {};
  const Node& node = graph.nodes[producer];
  for (const ops::Alias& alias : ops::aliases_of(node.op)) {
    if (alias.required && node.outputs[static_cast<std::size_t>(alias.output)] == value)
      return node.inputs[static_cast<std::size_t>(alias.input)];
  }
  return {};
}

// Which phases and blocks read each value.
class Readers {
 public:
  explicit Readers(const Graph& graph) : read_(graph.values.size()) {
    for (const Node& node : graph.nodes) {
      for (ValueId id : node.inputs) read_[id.index].insert({node.phase, node.block.index});
    }
  }
  bool backward(ValueId id) const {
    return std::any_of(read_[id.index].begin(), read_[id.index].end(), [](const auto& reader) { return reader.first == Phase::backward; });
  }
  bool other_forward(ValueId id, graph::BlockId block) const {
    return std::any_of(read_[id.index].begin(), read_[id.index].end(),
                       [&](const auto& reader) { return reader.first == Phase::forward && reader.second != block.index; });
  }

 private:
  std::vector<std::set<std::pair<Phase, std::uint32_t>>> read_;
};

// Finds what is cheap to make again in one block.
class CheapValues {
 public:
  CheapValues(const Graph& graph, const Readers& readers, const std::vector<bool>& once, BlockPasses& block)
      : graph_(graph), readers_(readers), once_(once), block_(block) {
    droppable_.insert(block.saved.begin(), block.saved.end());
    for (ValueId id : block.handed_on) droppable_.erase(id);
  }

  void run() {
    for (NodeId id : block_.forward) {
      std::vector<Rebuilt> needed;
      const Node& node = graph_.nodes[id];
      if (!reach(node, needed) || !is_worth_it(needed)) continue;
      for (Rebuilt& rebuilt : needed) {
        made_.insert(rebuilt.makes.begin(), rebuilt.makes.end());
        block_.rebuilds.push_back(std::move(rebuilt));
      }
    }
  }

 private:
  // What must run to make the node's results again from what the backward pass has anyway, in order.
  bool reach(const Node& node, std::vector<Rebuilt>& needed) const {
    std::optional<Rebuilt> rebuilt = rebuilt_of(node);
    if (!rebuilt) return false;
    for (ValueId id : rebuilt->inputs) {
      const graph::Value& value = graph_.values[id];
      if (value.role != graph::Role::computed || readers_.backward(id) || made_.contains(id)) continue;
      if (std::any_of(needed.begin(), needed.end(), [&](const Rebuilt& known) { return makes(known, id); })) continue;
      const Node& producer = graph_.nodes[value.producer];
      // A norm is rebuilt from the sum that its node also makes: where the backward pass does not have that, as in frozen blocks, it is
      // not.
      if (&producer == &node) return false;
      if (producer.block != block_.block || producer.phase != Phase::forward || !reach(producer, needed)) return false;
    }
    needed.push_back(std::move(*rebuilt));
    return true;
  }

  static bool makes(const Rebuilt& rebuilt, ValueId id) {
    return std::find(rebuilt.makes.begin(), rebuilt.makes.end(), id) != rebuilt.makes.end();
  }

  std::optional<Rebuilt> rebuilt_of(const Node& node) const {
    const ops::Definition& definition = ops::definition_of(node.op);
    if (ops::is_view(node.op) || ops::is_collective(node.op)) return std::nullopt;
    if (!node.outputs.empty() && once_[graph_.values[node.outputs.front()].producer.index]) return std::nullopt;
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      if (alias.required) return std::nullopt;
    }
    if (definition.rebuild != nullptr) {
      if (const std::optional<ops::Rebuild> form = definition.rebuild(node.op)) {
        Rebuilt rebuilt{.op = form->op, .inputs = {}, .makes = {}};
        for (const ops::Rebuild::Source& source : form->inputs)
          rebuilt.inputs.push_back((source.output ? node.outputs : node.inputs)[static_cast<std::size_t>(source.index)]);
        for (int output : form->outputs) rebuilt.makes.push_back(node.outputs[static_cast<std::size_t>(output)]);
        return rebuilt;
      }
    }
    return Rebuilt{.op = node.op, .inputs = node.inputs, .makes = node.outputs};
  }

  bool is_worth_it(const std::vector<Rebuilt>& needed) const {
    double flops = 0.0;
    for (const Rebuilt& rebuilt : needed) {
      const std::vector<base::TensorType> outputs = graph_.types(rebuilt.makes);
      flops += ops::definition_of(rebuilt.op).work(rebuilt.op, graph_.types(rebuilt.inputs), outputs).flops;
    }
    std::int64_t saved = 0;
    for (ValueId id : needed.back().makes) {
      if (droppable_.contains(id)) saved += graph_.values[id].type.bytes();
    }
    return saved > 0 && flops <= kCheap * static_cast<double>(saved);
  }

  const Graph& graph_;
  const Readers& readers_;
  const std::vector<bool>& once_;  // by node
  BlockPasses& block_;
  std::set<ValueId> droppable_;
  std::set<ValueId> made_;  // by the rebuilds so far
};

// The most bytes alive at once among what `nodes` make, where `kept` stays to the end and `apart` is counted elsewhere.
std::int64_t most_alive(const Graph& graph, const std::vector<NodeId>& nodes, const std::set<ValueId>& kept,
                        const std::set<ValueId>& apart) {
  std::map<ValueId, std::size_t> last_use;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    for (ValueId id : graph.nodes[nodes[index]].inputs) last_use[id] = index;
  }
  std::int64_t alive = 0;
  std::int64_t peak = 0;
  std::set<ValueId> made;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    const Node& node = graph.nodes[nodes[index]];
    for (ValueId id : node.outputs) {
      if (apart.contains(id)) continue;
      alive += bytes_of(graph, id);
      made.insert(id);
    }
    peak = std::max(peak, alive);
    std::vector<ValueId> done(node.inputs);
    done.insert(done.end(), node.outputs.begin(), node.outputs.end());
    for (ValueId id : done) {
      const auto use = last_use.find(id);
      const bool later = use != last_use.end() && use->second > index;
      if (!later && !kept.contains(id) && made.erase(id) > 0) alive -= bytes_of(graph, id);
    }
  }
  return peak;
}

// The price of those nodes that lead to what the block's own backward pass reads. Its output, which the next block's pass has read by then,
// is not among that because of it.
double price_to_save(const Graph& graph, const BlockPasses& block) {
  std::set<ValueId> wanted;
  for (NodeId id : block.backward) wanted.insert(graph.nodes[id].inputs.begin(), graph.nodes[id].inputs.end());
  double sum = 0.0;
  for (std::size_t index = block.forward.size(); index-- > 0;) {
    const Node& node = graph.nodes[block.forward[index]];
    if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return wanted.contains(id); })) continue;
    wanted.insert(node.inputs.begin(), node.inputs.end());
    sum += price(graph, node);
  }
  return sum;
}

class ChainMaker {
 public:
  ChainMaker(const Graph& graph, const std::vector<BlockPasses>& passes, bool accumulates)
      : graph_(graph), passes_(passes), accumulates_(accumulates), readers_(graph), weight_gradients_(weight_gradients(graph)) {}

  solvers::Chain run() {
    solvers::Chain chain;
    for (std::size_t index = 0; index < passes_.size(); ++index) chain.stages.push_back(stage_of(index));
    return chain;
  }

 private:
  solvers::ChainStage stage_of(std::size_t index) {
    const BlockPasses& block = passes_[index];
    solvers::ChainStage stage{.output = bytes_of(graph_, block.handed_on), .forms = {}};
    for (NodeId id : block.forward) stage.forward += price(graph_, graph_.nodes[id]);
    stage.forward_again = price_to_save(graph_, block);
    std::set<ValueId> outputs(block.handed_on.begin(), block.handed_on.end());
    std::set<ValueId> saved = outputs;
    saved.insert(block.saved.begin(), block.saved.end());
    const std::int64_t whole = bytes_of(graph_, {saved.begin(), saved.end()});
    stage.temporary = std::max(most_alive(graph_, block.forward, outputs, weight_gradients_) - stage.output,
                               most_alive(graph_, block.forward, saved, weight_gradients_) - whole);
    if (index + 1 < passes_.size()) stage.gradient = bytes_of(graph_, arriving(index));
    if (!accumulates_) stage.weight_gradients = gradients_begun(block);

    solvers::ChainForm all{.saved = whole};
    for (NodeId id : block.backward) all.backward += price(graph_, graph_.nodes[id]);
    const std::set<ValueId> leaving = index > 0 ? to_set(arriving(index - 1)) : std::set<ValueId>{};
    all.temporary = most_alive(graph_, block.backward, leaving, weight_gradients_);
    stage.forms.push_back(all);
    if (!block.rebuilds.empty()) stage.forms.push_back(smaller(block, all, outputs));
    return stage;
  }

  solvers::ChainForm smaller(const BlockPasses& block, solvers::ChainForm form, const std::set<ValueId>& outputs) const {
    for (const Rebuilt& rebuilt : block.rebuilds) {
      form.backward += price_of(rebuilt.op, graph_.types(rebuilt.inputs), graph_.types(rebuilt.makes));
      for (ValueId id : rebuilt.makes) {
        if (outputs.contains(id) || !readers_.backward(id)) continue;
        form.saved -= bytes_of(graph_, id);
        form.temporary += bytes_of(graph_, id);
      }
    }
    return form;
  }

  static std::set<ValueId> to_set(const std::vector<ValueId>& ids) { return {ids.begin(), ids.end()}; }

  // Gradients that the backward pass of the stage reads and a later one made.
  std::vector<ValueId> arriving(std::size_t index) const {
    std::set<ValueId> found;
    for (NodeId id : passes_[index].backward) {
      for (ValueId input : graph_.nodes[id].inputs) {
        const graph::Value& value = graph_.values[input];
        if (!value.producer.valid() || weight_gradients_.contains(input)) continue;
        const Node& producer = graph_.nodes[value.producer];
        if (producer.phase == Phase::backward && producer.block != passes_[index].block) found.insert(input);
      }
    }
    return {found.begin(), found.end()};
  }

  // Of what the block is the first to make; what others add to is there already.
  std::int64_t gradients_begun(const BlockPasses& block) const {
    std::int64_t sum = 0;
    for (const std::vector<NodeId>* nodes : {&block.forward, &block.backward}) {
      for (NodeId id : *nodes) {
        for (ValueId output : graph_.nodes[id].outputs) {
          if (weight_gradients_.contains(output) && !in_place_of(graph_, output).valid()) sum += bytes_of(graph_, output);
        }
      }
    }
    return sum;
  }

  const Graph& graph_;
  const std::vector<BlockPasses>& passes_;
  bool accumulates_;
  Readers readers_;
  std::set<ValueId> weight_gradients_;
};

}  // namespace

std::set<ValueId> weight_gradients(const Graph& graph) {
  std::set<ValueId> found;
  for (const graph::Parameter& parameter : graph.parameters) {
    for (ValueId id = parameter.gradient; id.valid() && found.insert(id).second;) id = in_place_of(graph, id);
  }
  return found;
}

double price(const Graph& graph, const Node& node) { return price_of(node.op, graph.types(node.inputs), graph.types(node.outputs)); }

bool has_backward_pass(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.phase == Phase::backward; });
}

bool has_update(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.phase == Phase::update; });
}

std::vector<BlockPasses> passes_of(const Graph& graph) {
  if (!has_backward_pass(graph)) return {};
  std::vector<BlockPasses> passes;
  std::map<std::uint32_t, std::size_t> at;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[NodeId{index}];
    if (node.phase != Phase::forward && node.phase != Phase::backward) continue;
    const auto [found, fresh] = at.try_emplace(node.block.index, passes.size());
    if (fresh) passes.push_back({.block = node.block, .forward = {}, .backward = {}, .saved = {}, .handed_on = {}, .rebuilds = {}});
    BlockPasses& block = passes[found->second];
    (node.phase == Phase::forward ? block.forward : block.backward).push_back(NodeId{index});
  }
  const Readers readers(graph);
  const std::set<ValueId> gradients = weight_gradients(graph);
  const std::vector<bool> once = graph::nodes_that_run_once(graph);
  for (BlockPasses& block : passes) {
    for (NodeId id : block.forward) {
      for (ValueId output : graph.nodes[id].outputs) {
        if (readers.backward(output) && !gradients.contains(output)) block.saved.push_back(output);
        // What is not made again is kept like what others read.
        const bool kept = once[id.index] && !in_place_of(graph, output).valid();
        if (kept || readers.other_forward(output, block.block)) block.handed_on.push_back(output);
      }
    }
    if (&block != &passes.back()) CheapValues(graph, readers, once, block).run();
  }
  return passes;
}

solvers::Chain chain_of(const Graph& graph, const std::vector<BlockPasses>& passes, bool accumulates) {
  return ChainMaker(graph, passes, accumulates).run();
}

}  // namespace plimsoll::lowering

#include "lowering/passes/split_pipe.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "graph/rewrite.h"
#include "graph/scalar_chains.h"

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Role;
using graph::Value;
using graph::ValueId;

constexpr std::int32_t kEverywhere = -1;

// What belongs to the step rather than to a block.
bool runs_everywhere(Phase phase) { return phase == Phase::begin || phase == Phase::verdict || phase == Phase::finish; }

// The places that read each parameter's weight, and that of its own block.
std::vector<std::set<std::int32_t>> holders_of(const Graph& graph, const Pipe& pipe) {
  std::vector<std::set<std::int32_t>> holders(graph.parameters.size());
  std::map<std::uint32_t, std::size_t> parameter_of;
  for (std::size_t index = 0; index < graph.parameters.size(); ++index) {
    const ValueId weight = graph.parameters[index].weight;
    parameter_of[weight.index] = index;
    holders[index].insert(pipe.place_of(graph.values[weight].block));
  }
  for (const Node& node : graph.nodes) {
    if (!graph::runs_per_micro_batch(node.phase)) continue;
    for (ValueId id : node.inputs) {
      if (const auto found = parameter_of.find(id.index); found != parameter_of.end())
        holders[found->second].insert(pipe.place_of(node.block));
    }
  }
  return holders;
}

// The form of a gradient operator that writes instead of adding to what is there.
ops::Op writing_form(const ops::Op& op) {
  return std::visit(
      [](auto attributes) -> ops::Op {
        if constexpr (requires { attributes.accumulate = false; }) attributes.accumulate = false;
        return attributes;
      },
      op);
}

class PipeSplit {
 public:
  PipeSplit(const Graph& old, const Pipe& pipe, std::int32_t place, const std::optional<Corner>& corner)
      : old_(old),
        pipe_(pipe),
        place_(place),
        corner_(corner),
        chains_(old),
        rewrite_(old, graph::Values::fresh),
        readers_(old.values.size()) {
    const std::vector<std::set<std::int32_t>> holders = holders_of(old, pipe);
    for (std::size_t index = 0; index < old.parameters.size(); ++index) {
      if (!holders[index].contains(place)) continue;
      held_.push_back(index);
      if (!old.parameters[index].gradient.valid()) continue;
      held_gradient_[old.parameters[index].gradient.index] = index;
      for (ValueId state : old.parameters[index].states) held_states_.insert(state.index);
      if (holders[index].size() > 1) find_own_gradient(index);
    }
    for (const Node& node : old.nodes) {
      const std::int32_t reader = place_of(node);
      for (ValueId id : node.inputs) {
        const std::int32_t maker = maker_of(id);
        if (maker == kEverywhere || reader == kEverywhere || maker == reader || !graph::runs_per_micro_batch(node.phase)) continue;
        if (!is_cut(node, id)) readers_[id.index].insert(reader);
      }
    }
    // Every place counts the values that travel alike.
    for (std::uint32_t index = 0; index < readers_.size(); ++index) {
      if (!readers_[index].empty()) tag_of_[index] = static_cast<std::int64_t>(tag_of_.size());
    }
  }

  Graph run() {
    for (std::size_t block = 0; block < old_.blocks.size(); ++block)
      rewrite_.to().blocks[BlockId{static_cast<std::uint32_t>(block)}].stage = pipe_.stage_of_block[block];
    if (old_.scalars.valid()) newest_scalars_ = root(old_.scalars);
    if (old_.pending.valid()) root(old_.pending);
    for (const Node& node : old_.nodes) {
      if (node.phase >= Phase::norm) join_gradients();
      if (node.phase == Phase::verdict) verdict_ = node.op;
      if (node.phase == Phase::verdict && !pipe_.apart) merge_scalars(true, Phase::norm);
      if (node.phase == Phase::finish) tell_norm();
      if (is_mine(node)) copy(node);
    }
    if (old_.scalars.valid()) merge_scalars(false, Phase::finish);
    return take();
  }

 private:
  // ---- whose is what

  std::int32_t place_of(const Node& node) const {
    return runs_everywhere(node.phase) || keeps_scalars(node) ? kEverywhere : pipe_.place_of(node.block);
  }

  // For updates that are a step late.
  bool keeps_scalars(const Node& node) const { return ops::is_copy(node.op) && node.inputs[1] == old_.pending; }

  // Roots, and the step's scalars, are there without being sent.
  std::int32_t maker_of(ValueId id) const {
    const Value& value = old_.values[id];
    if (value.role != Role::computed || is_scalars(id)) return kEverywhere;
    return place_of(old_.nodes[value.producer]);
  }

  bool is_scalars(ValueId id) const { return chains_.has(id); }

  bool is_mine(const Node& node) const {
    const std::int32_t place = place_of(node);
    if (place == kEverywhere || place == place_) return true;
    // The update of a weight that is on two places runs on both; its square counts on one.
    return node.phase == Phase::update && node.inputs.size() > 1 &&
           (held_gradient_.contains(node.inputs[1].index) || held_states_.contains(node.inputs[1].index));
  }

  // ---- weights on two places

  // The summands of such a gradient are a chain in which each adds itself to those before it. The newest that is made here ends
  // this place's part.
  void find_own_gradient(std::size_t parameter) {
    ValueId id = old_.parameters[parameter].gradient;
    while (maker_of(id) != place_) {
      const Node& node = old_.nodes[old_.values[id].producer];
      PLIMSOLL_CHECK(writing_form(node.op) != node.op, "{} is not a sum in place", old_.values[id].name);
      id = node.inputs.back();
    }
    own_gradient_[parameter] = id;
  }

  // Another place's part of a gradient, to which this node would add its own.
  bool is_cut(const Node& node, ValueId id) const {
    if (id != node.inputs.back() || writing_form(node.op) == node.op) return false;
    const std::int32_t maker = maker_of(id);
    return maker != kEverywhere && maker != place_of(node);
  }

  void join_gradients() {
    if (joined_) return;
    joined_ = true;
    for (auto& [parameter, own] : own_gradient_) {
      own = rewrite_.now(own);
      const ops::Collective sum{.kind = ops::CollectiveKind::all_reduce, .axis = ops::Axis::tied, .members = 2, .tensors = 1};
      const ValueId weight = old_.parameters[parameter].weight;
      rewrite_.replace(old_.parameters[parameter].gradient, rewrite_.make_one(sum, {own}, {old_.values[weight].block, Phase::join},
                                                                              "grad." + old_.parameters[parameter].name + ".joined"));
    }
  }

  void merge_scalars(bool norm, Phase phase) {
    if (merged_) return;
    merged_ = true;
    if (!corner_ || corner_->first) add_up_scalars(norm, phase);
    if (!corner_) return;
    // Ranks that are first on one axis alone pass on what is overwritten again.
    tell_scalars(ops::Axis::data, corner_->data, phase);
    tell_scalars(ops::Axis::tensor, corner_->tensor, phase);
  }

  void tell_scalars(const ops::Axis& axis, std::int64_t members, Phase phase) {
    if (members == 1) return;
    const ops::Collective tell{.kind = ops::CollectiveKind::broadcast, .axis = axis, .members = members, .tensors = 1};
    newest_scalars_ = rewrite_.make_one(tell, {newest_scalars_}, {BlockId{0}, phase}, "scalars.told");
  }

  void add_up_scalars(bool norm, Phase phase) {
    const ops::Collective gather{.kind = ops::CollectiveKind::all_gather, .axis = ops::Axis::pipe, .members = pipe_.places, .tensors = 1};
    const ValueId all = rewrite_.make_one(gather, {newest_scalars_}, {BlockId{0}, phase}, "scalars.places");
    newest_scalars_ = rewrite_.make_one(ops::MergeScalars{.members = pipe_.places, .norm = norm}, {newest_scalars_, all},
                                        {BlockId{0}, phase}, "scalars.pipe");
  }

  // Places that updated apart have yet to learn the norm of all gradients.
  void tell_norm() {
    if (merged_) return;
    merge_scalars(true, Phase::finish);
    newest_scalars_ = rewrite_.make_one(verdict_, {newest_scalars_}, {BlockId{0}, Phase::finish}, "scalars.norm");
  }

  // ---- nodes

  ValueId root(ValueId id) { return rewrite_.now(id).valid() ? rewrite_.now(id) : rewrite_.declare(id); }

  void copy(const Node& node) {
    if (graph::runs_per_micro_batch(node.phase)) receive_for(pipe_.stage_of_block[node.block.index], node);
    Node made = node;
    if (is_cut(node, made.inputs.empty() ? ValueId{} : made.inputs.back())) {
      made.op = writing_form(made.op);
      made.inputs.pop_back();
    }
    for (ValueId& id : made.inputs) {
      // Who reads what the host wrote before the step does so wherever it runs, also a second time.
      if (is_scalars(id) && old_.values[id].role == Role::computed) {
        id = newest_scalars_;
      } else {
        id = old_.values[id].role == Role::computed ? rewrite_.now(id) : root(id);
      }
    }
    rewrite_.keep(made, made.inputs);
    for (ValueId output : node.outputs) {
      if (is_scalars(output)) newest_scalars_ = rewrite_.now(output);
    }
    if (!graph::runs_per_micro_batch(node.phase)) return;
    for (ValueId output : node.outputs) send(node, output);
  }

  ops::Message message(bool receive, std::int32_t peer, ValueId value) const {
    const base::TensorType& type = old_.values[value].type;
    return {.receive = receive, .peer = peer, .tag = tag_of_.at(value.index), .dtype = type.dtype, .shape = type.shape};
  }

  void send(const Node& node, ValueId value) {
    for (std::int32_t reader : readers_[value.index])
      rewrite_.make(message(false, reader, value), {rewrite_.now(value)}, graph::beside(node), "sent");
  }

  // All messages that a stage needs in a phase come before its first node there.
  void receive_for(std::int32_t stage, const Node& first) {
    if (!received_.insert({stage, first.phase}).second) return;
    for (const Node& node : old_.nodes) {
      if (!is_mine(node) || node.phase != first.phase || pipe_.stage_of_block[node.block.index] != stage) continue;
      for (ValueId id : node.inputs) {
        const std::int32_t maker = maker_of(id);
        if (maker == kEverywhere || maker == place_ || rewrite_.now(id).valid() || is_cut(node, id)) continue;
        rewrite_.replace(id, rewrite_.make_one(message(true, maker, id), {}, graph::beside(first), old_.values[id].name));
      }
    }
  }

  Graph take() {
    rewrite_.to().parameters.clear();
    for (std::size_t index : held_) {
      const graph::Parameter& parameter = old_.parameters[index];
      root(parameter.weight);
      root(parameter.master);
      for (ValueId state : parameter.states) root(state);
      rewrite_.to().parameters.push_back(parameter);
    }
    Graph graph = rewrite_.take();
    for (std::size_t place = 0; place < held_.size(); ++place) {
      if (const auto own = own_gradient_.find(held_[place]); own != own_gradient_.end()) graph.parameters[place].gradient = own->second;
    }
    return graph;
  }

  const Graph& old_;
  const Pipe& pipe_;
  std::int32_t place_;
  std::optional<Corner> corner_;
  graph::ScalarChains chains_;                    // of the old graph
  graph::Rewrite rewrite_;                        // a joined gradient is replaced by the sum
  std::vector<std::set<std::int32_t>> readers_;   // of each value: other places that need it
  std::map<std::uint32_t, std::int64_t> tag_of_;  // of values that travel
  std::vector<std::size_t> held_;                 // parameters of which this place has the weight
  std::map<std::uint32_t, std::size_t> held_gradient_;
  std::set<std::uint32_t> held_states_;          // of their optimizer; updates that are a step late read the gradient there
  std::map<std::size_t, ValueId> own_gradient_;  // parameter on two places -> the end of this place's part of its gradient; new once joined
  std::set<std::pair<std::int32_t, Phase>> received_;
  ValueId newest_scalars_;
  ops::Op verdict_;
  bool joined_ = false;
  bool merged_ = false;
};

}  // namespace

Graph split_over_pipe(const Graph& graph, const Pipe& pipe, std::int32_t place, const std::optional<Corner>& corner) {
  return PipeSplit(graph, pipe, place, corner).run();
}

std::int32_t tied_place(const Graph& graph, const Pipe& pipe) {
  std::int32_t tied = 0;
  const std::vector<std::set<std::int32_t>> holders = holders_of(graph, pipe);
  for (std::size_t index = 0; index < holders.size(); ++index) {
    if (holders[index].size() == 1 || graph.parameters[index].frozen) continue;
    const bool fits = holders[index].size() == 2 && *holders[index].begin() == 0 && (tied == 0 || tied == *holders[index].rbegin());
    if (!fits) {
      base::not_legal("parameter {} is read on {} places of the pipe axis; a weight may be shared by the first place and one other",
                      graph.parameters[index].name, holders[index].size());
    }
    tied = *holders[index].rbegin();
  }
  return tied;
}

Graph route_messages(const Graph& graph, const plan::Mesh& mesh, const ops::Seat& seat) {
  graph::Rewrite routed(graph);
  for (const Node& node : graph.nodes) {
    if (!ops::is_message(node.op)) {
      routed.keep(node);
      continue;
    }
    const auto& message = std::get<ops::Message>(node.op);
    const std::int64_t there = mesh.extent_at(ops::Axis::tensor, static_cast<std::int32_t>(message.peer));
    // The rank at place t has what it receives from place t modulo the sender's width.
    const std::int64_t first = message.receive ? seat.place % there : seat.place;
    const std::int64_t step = message.receive ? there : seat.members;
    for (std::int64_t place = first; place < there; place += step) {
      Node copy = node;
      std::get<ops::Message>(copy.op).seat = place;
      routed.keep(std::move(copy));
    }
  }
  return routed.take();
}

namespace {

class BackwardSplit {
 public:
  BackwardSplit(const Graph& old, bool gathers_again) : old_(old), gathers_again_(gathers_again), split_(old) {}

  Graph run() {
    const std::vector<bool> only_weights = nodes_for_weights();
    for (std::uint32_t index = 0; index < old_.nodes.size(); ++index) {
      const Node& node = old_.nodes[NodeId{index}];
      const bool ends =
          node.phase > Phase::backward || (!later_.empty() && old_.blocks[later_.back()->block].stage != old_.blocks[node.block].stage);
      if (ends) add_later();
      if (only_weights[index]) {
        later_.push_back(&node);
      } else {
        split_.keep(node);
      }
    }
    add_later();
    return split_.take();
  }

 private:
  // From the end: a node is for weights alone if nothing but such nodes reads what it makes.
  std::vector<bool> nodes_for_weights() const {
    std::vector<bool> awaited(old_.values.size(), false);
    std::vector<bool> only_weights(old_.nodes.size(), false);
    for (auto index = static_cast<std::uint32_t>(old_.nodes.size()); index-- > 0;) {
      const Node& node = old_.nodes[NodeId{index}];
      if (node.phase > Phase::backward) continue;
      const bool wanted =
          node.outputs.empty() || std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return awaited[id.index]; });
      only_weights[index] = node.phase == Phase::backward && !wanted;
      if (only_weights[index]) continue;
      for (ValueId id : node.inputs) awaited[id.index] = true;
    }
    return only_weights;
  }

  void add_later() {
    std::map<std::uint32_t, ValueId> again;
    for (const Node* weight : later_) {
      std::vector<ValueId> inputs;
      for (ValueId id : weight->inputs) inputs.push_back(gathered_again(id, *weight, again));
      split_.to().nodes[split_.keep(*weight, std::move(inputs))].phase = Phase::backward_weight;
    }
    later_.clear();
  }

  // Where the backward pass of the inputs gathered `id`, another gather of the same rows.
  ValueId gathered_again(ValueId id, const Node& user, std::map<std::uint32_t, ValueId>& again) {
    const Node* view = maker_of(id);
    if (!gathers_again_ || view == nullptr || !ops::is_view(view->op)) return split_.now(id);
    const Node* gather = maker_of(view->inputs[0]);
    const auto* collective = gather == nullptr ? nullptr : std::get_if<ops::Collective>(&gather->op);
    if (collective == nullptr || collective->kind != ops::CollectiveKind::all_gather || collective->rows == 0) return split_.now(id);
    const auto [found, fresh] = again.try_emplace(id.index);
    if (fresh) {
      const graph::Site site{.block = user.block, .phase = Phase::backward_weight};
      const ValueId rows = split_.make_one(gather->op, {split_.now(gather->inputs[0])}, site, old_.values[view->inputs[0]].name + ".again");
      found->second = split_.make_one(view->op, {rows}, site, old_.values[id].name + ".again");
    }
    return found->second;
  }

  // What makes the value in the backward pass, before the gradients of weights.
  const Node* maker_of(ValueId id) const {
    const NodeId producer = old_.values[id].producer;
    if (!producer.valid()) return nullptr;
    const Node& node = old_.nodes[producer];
    const bool moves = std::find(later_.begin(), later_.end(), &node) != later_.end();
    return node.phase == Phase::backward && !moves ? &node : nullptr;
  }

  const Graph& old_;
  bool gathers_again_;
  graph::Rewrite split_;
  std::vector<const Node*> later_;  // for weights alone, of the stage in hand
};

}  // namespace

Graph split_backward(const Graph& graph, bool gathers_again) { return BackwardSplit(graph, gathers_again).run(); }

}  // namespace plimsoll::lowering

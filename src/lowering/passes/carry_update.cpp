#include "lowering/passes/carry_update.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "graph/rewrite.h"
#include "lowering/passes/offload.h"
#include "lowering/passes/optimizer_tiers.h"
#include "ops/step_scalars.h"

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;

class Carry {
 public:
  Carry(const Graph& old, const strategy::TierShare& share) : old_(old), rewrite_(old), new_(rewrite_.to()) {
    const std::vector<ops::Tier> tiers = optimizer_tiers(old, share);
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      if (!old.parameters[index].frozen && tiers[index] != ops::Tier::device) parameter_of_[old.parameters[index].master.index] = index;
    }
  }

  Graph run() {
    for (const Node& node : old_.nodes) {
      if (node.phase == Phase::finish) keep_scalars();
      const auto found = is_update(node.op) ? parameter_of_.find(root_of(old_, node.inputs[2]).index) : parameter_of_.end();
      if (found == parameter_of_.end()) {
        new_.nodes[rewrite_.keep(node)].ahead = follows_carried(node);
      } else {
        carry(node, new_.parameters[found->second]);
      }
    }
    return rewrite_.take();
  }

 private:
  // Whether it exchanges what carried updates make, or is a view for one: it reads roots and their results alone.
  bool follows_carried(const Node& node) const {
    return node.phase == Phase::update && !is_update(node.op) && std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
             const graph::Value& value = new_.values[id];
             return value.role != graph::Role::computed || new_.nodes[value.producer].ahead;
           });
  }

  void carry(Node node, graph::Parameter& parameter) {
    if (!new_.pending.valid()) {
      new_.pending = new_.add_value(
          {.name = std::string(kPendingScalars), .type = ops::step_scalars_type(), .role = graph::Role::state, .block = node.block});
    }
    verdict_ = node.inputs[0];
    const ValueId gradient = node.inputs[1];
    const ValueId pending = new_.add_value({.name = parameter.name + std::string(kPendingSuffix),
                                            .type = old_.values[gradient].type,
                                            .role = graph::Role::state,
                                            .block = node.block});
    parameter.states.push_back(pending);
    node.inputs[0] = new_.pending;
    node.inputs[1] = pending;
    node.ahead = true;
    rewrite_.keep(node);
    keep(gradient, pending, node.block);
  }

  void keep(ValueId value, ValueId pending, graph::BlockId block) {
    const ops::Move move{.from = ops::Tier::device, .to = ops::Tier::device, .into = true};
    rewrite_.make(move, {value, pending}, {block, Phase::update}, new_.values[pending].name + ".put");
  }

  void keep_scalars() {
    if (verdict_.valid()) keep(verdict_, new_.pending, new_.values[new_.pending].block);
    verdict_ = {};
  }

  const Graph& old_;
  graph::Rewrite rewrite_;
  Graph& new_;
  std::map<std::uint32_t, std::size_t> parameter_of_;  // master -> its parameter, where the host updates it
  ValueId verdict_;                                    // the scalars that updates of this step's gradients read
};

// Which stretch is the first to read what an update makes.
class FirstUses {
 public:
  FirstUses(const Graph& graph, const std::vector<Stretch>& stretches) : graph_(graph), first_read_(graph.values.size()) {
    for (std::size_t index = 0; index < stretches.size(); ++index) {
      if (!graph::runs_per_micro_batch(stretches[index].phase)) continue;
      if (!first_) first_ = index;
      for (std::uint32_t id = stretches[index].begin; id < stretches[index].end; ++id) {
        for (ValueId input : graph.nodes[NodeId{id}].inputs) {
          std::optional<std::size_t>& read = first_read_[input.index];
          if (!read) read = index;
        }
      }
    }
  }

  // Of an update. A tensor rank may have a weight that others read for it.
  std::size_t of(const Node& update) const {
    const ValueId weight = root_of(graph_, has_copy(update.op) ? update.inputs.back() : update.inputs[2]);
    return first_read_[weight.index].value_or(first_.value_or(0));
  }

 private:
  const Graph& graph_;
  std::vector<std::optional<std::size_t>> first_read_;  // by value: a stretch
  std::optional<std::size_t> first_;                    // that runs for each micro-batch
};

// Node -> the first use of what it makes. What ranks exchange together is wanted with the first of it.
std::map<std::uint32_t, std::size_t> wanted_at(const Graph& graph, const std::vector<Stretch>& stretches) {
  const FirstUses uses(graph, stretches);
  std::map<std::uint32_t, std::size_t> wanted;
  for (std::uint32_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[NodeId{id}];
    if (node.phase != Phase::update) continue;
    if (is_update(node.op) && node.ahead) wanted[id] = uses.of(node);
    if (is_update(node.op) || ops::is_copy(node.op) || ops::is_view(node.op)) continue;
    std::vector<std::uint32_t> makers;
    for (ValueId input : node.inputs) makers.push_back(graph.values[root_of(graph, input)].producer.index);
    std::size_t first = stretches.size();
    for (std::uint32_t maker : makers) {
      PLIMSOLL_CHECK(wanted.contains(maker), "ranks exchange {}, which no waiting update makes", graph.values[node.inputs[0]].name);
      first = std::min(first, wanted.at(maker));
    }
    for (std::uint32_t maker : makers) wanted[maker] = first;
    wanted[id] = first;
  }
  return wanted;
}

}  // namespace

Graph carry_update(const Graph& graph, const strategy::TierShare& share) { return Carry(graph, share).run(); }

Graph waiting_update(const Graph& graph) {
  graph::Rewrite rewrite(graph);
  for (graph::Value& value : rewrite.to().values) value.producer = {};
  for (const Node& node : graph.nodes) {
    if (node.ahead) rewrite.to().nodes[rewrite.keep(node)].ahead = false;
  }
  Graph waiting = rewrite.take();
  waiting.results = {};
  for (graph::Parameter& parameter : waiting.parameters) parameter.gradient = {};
  // It is applied like the update of a step whose scalars are in the host's memory.
  if (waiting.pending.valid()) waiting.values[waiting.pending].tier = ops::Tier::host;
  waiting.pending = {};
  return waiting;
}

std::vector<std::vector<AheadOfUse>> ahead_of_use(const Graph& graph, const std::vector<Stretch>& stretches, std::int64_t prefetch,
                                                  bool stages) {
  std::vector<std::pair<std::size_t, NodeId>> order;
  for (const auto& [node, use] : wanted_at(graph, stretches)) order.emplace_back(use, NodeId{node});
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::vector<AheadOfUse>> ahead(stretches.size());
  std::size_t next = 0;
  for (std::size_t index = 0; index < stretches.size(); ++index) {
    if (!graph::runs_per_micro_batch(stretches[index].phase)) continue;
    for (; next < order.size(); ++next) {
      const auto& [use, node] = order[next];
      const bool now =
          use <= index || (use <= index + static_cast<std::size_t>(prefetch) && in_a_row(graph, stretches[index], stretches[use], stages));
      if (!now) break;
      ahead[index].push_back({node, stretches[use].block});
    }
  }
  return ahead;
}

}  // namespace plimsoll::lowering

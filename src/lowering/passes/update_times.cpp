#include "lowering/passes/update_times.h"

#include <algorithm>
#include <utility>

#include "lowering/passes/optimizer_tiers.h"

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;
using ops::Tier;

class Timing {
 public:
  Timing(const Graph& old, const base::IdVector<ValueId, graph::Value>& values, const std::vector<Stretch>& stretches,
         const OffloadOptions& options)
      : old_(old), values_(values), stretches_(stretches), options_(options) {
    times_.work.resize(stretches.size());
    for (const Node& node : old.nodes) {
      if (ops::has_prelude(node.op)) with_prelude_.insert(node.inputs[1].index);
    }
  }

  UpdateTimes run() && {
    if (options_.ahead_of_use) {
      find_waiting_work();
    } else if (options_.under_backward || late()) {
      find_work();
    }
    return std::move(times_);
  }

 private:
  // Under the backward pass: behind the stretch that completes the gradient, or later ones that still read the weight. What is a step
  // late has its gradients when the step begins: then only the weights wait for those who read them.
  void find_work() {
    std::vector<std::size_t> made(old_.values.size(), 0);  // the stretch that makes it
    std::vector<std::size_t> read(old_.values.size(), 0);  // the last stretch of the backward pass that reads it
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      for (std::uint32_t id = stretches_[index].begin; id < stretches_[index].end; ++id) {
        const Node& node = old_.nodes[NodeId{id}];
        for (ValueId output : node.outputs) made[output.index] = index;
        if (!graph::runs_per_micro_batch(node.phase)) continue;
        for (ValueId input : node.inputs) read[input.index] = index;
      }
    }
    for (std::uint32_t id = 0; id < old_.nodes.size(); ++id) {
      const Node& node = old_.nodes[NodeId{id}];
      if (node.phase != Phase::update) continue;
      if (ops::is_copy(node.op) && !with_prelude_.contains(node.inputs[1].index)) keep_at(NodeId{id}, made[node.inputs[0].index]);
      if (!is_update(node.op) || ops::has_prelude(node.op)) continue;
      std::size_t ready = made[node.inputs[1].index];
      for (std::size_t input = 2; input < node.inputs.size(); ++input)
        ready = std::max(ready, read[root_of(old_, node.inputs[input]).index]);
      // A tensor rank may have a weight that others read for it.
      while (late() && stretches_[ready].phase == Phase::begin) ++ready;
      if (!graph::runs_per_micro_batch(stretches_[ready].phase)) continue;
      times_.early.insert(id);
      if (late() && values_[node.inputs[2]].tier == Tier::host && has_copy(node.op) &&
          old_.values[node.inputs.back()].tier == Tier::device) {
        times_.put_at[node.outputs.back().index] = ready;
      } else {
        times_.work[ready].ready.push_back(NodeId{id});
      }
    }
    if (!times_.put_at.empty()) spread();
  }

  // What the step before left is done ahead of the weights' first use; what this one leaves goes out behind whoever makes it.
  void find_waiting_work() {
    std::vector<std::vector<AheadOfUse>> ahead = lowering::ahead_of_use(old_, stretches_, options_.prefetch, options_.stages);
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      for (const AheadOfUse& each : ahead[index]) times_.early.insert(each.node.index);
      times_.work[index].ahead = std::move(ahead[index]);
    }
    std::vector<std::size_t> made(old_.values.size(), 0);  // the stretch that makes it
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      for (std::uint32_t id = stretches_[index].begin; id < stretches_[index].end; ++id) {
        for (ValueId output : old_.nodes[NodeId{id}].outputs) made[output.index] = index;
      }
    }
    for (std::uint32_t id = 0; id < old_.nodes.size(); ++id) {
      const Node& node = old_.nodes[NodeId{id}];
      if (node.phase == Phase::update && ops::is_copy(node.op)) keep_at(NodeId{id}, made[root_of(old_, node.inputs[0]).index]);
    }
  }

  // What waits for the next step: behind the stretch that makes it, or in the update.
  void keep_at(NodeId node, std::size_t stretch) {
    times_.early.insert(node.index);
    if (!graph::runs_per_micro_batch(stretches_[stretch].phase)) {
      while (stretches_[stretch].phase != Phase::update ||
             (stretch + 1 < stretches_.size() && stretches_[stretch + 1].phase == Phase::update))
        ++stretch;
    }
    times_.work[stretch].waiting.push_back(node);
  }

  // Updates that are a step late keep the host busy for as long as the device is: evenly under the forward and the backward pass, which
  // takes twice the time, in the order in which the backward pass has done with the weights.
  void spread() {
    std::vector<std::pair<std::size_t, NodeId>> order;
    double elements = 0.0;
    for (std::uint32_t id = 0; id < old_.nodes.size(); ++id) {
      const Node& node = old_.nodes[NodeId{id}];
      if (!times_.early.contains(id) || !is_update(node.op) || !times_.put_at.contains(node.outputs.back().index)) continue;
      order.emplace_back(times_.put_at.at(node.outputs.back().index), NodeId{id});
      elements += static_cast<double>(old_.values[node.inputs[2]].type.shape.elements());
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto share = [&](std::size_t stretch) {
      const Phase phase = stretches_[stretch].phase;
      return !graph::runs_per_micro_batch(phase) ? 0.0 : phase == Phase::backward ? 2.0 : 1.0;
    };
    double time = 0.0;
    for (std::size_t stretch = 0; stretch < stretches_.size(); ++stretch) time += share(stretch);
    std::size_t stretch = 0;
    double passed = share(0) / time;  // until the end of the stretch
    double done = 0.0;
    for (const auto& [last, node] : order) {
      while (stretch < last && (passed <= done / elements || share(stretch) == 0.0)) passed += share(++stretch) / time;
      times_.work[std::min(stretch, last)].starts.push_back(node);
      done += static_cast<double>(old_.values[old_.nodes[node].inputs[2]].type.shape.elements());
    }
  }

  bool late() const { return old_.pending.valid(); }

  const Graph& old_;
  const base::IdVector<ValueId, graph::Value>& values_;
  const std::vector<Stretch>& stretches_;
  const OffloadOptions& options_;
  std::set<std::uint32_t> with_prelude_;  // gradients that updates with preludes read
  UpdateTimes times_;
};

}  // namespace

UpdateTimes update_times(const Graph& graph, const base::IdVector<ValueId, graph::Value>& values, const std::vector<Stretch>& stretches,
                         const OffloadOptions& options) {
  return Timing(graph, values, stretches, options).run();
}

}  // namespace plimsoll::lowering

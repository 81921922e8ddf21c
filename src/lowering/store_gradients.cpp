#include "lowering/store_gradients.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "lowering/stretches.h"

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Turn;
using graph::ValueId;
using ops::Tier;

// A gradient that leaves.
struct Leaving {
  ValueId last;          // as the update reads it
  ValueId first;         // what the first operator makes of it, in the same memory
  ValueId home;          // where it lives
  ValueId put;           // home, after the last micro-batch wrote it
  std::size_t made = 0;  // the stretch that makes `first`
};

class Store {
 public:
  Store(const Graph& old, const StoreGradients& options) : old_(old), new_(old), options_(options), stretches_(stretches_of(old)) {
    new_.nodes = {};
    for (const Node& node : old.nodes) {
      if (node.phase == Phase::update && std::holds_alternative<ops::Move>(node.op)) pending_[node.inputs[0].index] = node.inputs[1];
    }
    for (const Node& node : old.nodes) {
      if (graph::runs_per_micro_batch(node.phase) && std::holds_alternative<ops::SquaredNorm>(node.op)) consider(node.inputs[1]);
    }
  }

  Graph run() {
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      const Stretch& stretch = stretches_[index];
      begin_stretch(index);
      for (std::uint32_t node = stretch.begin; node < stretch.end; ++node) copy(old_.nodes[NodeId{node}]);
      end_stretch(stretch);
    }
    return std::move(new_);
  }

 private:
  void consider(ValueId gradient) {
    Leaving leaving{.last = gradient, .first = gradient, .home = {}, .put = {}};
    NodeId producer = old_.values[gradient].producer;
    const Node* maker = &old_.nodes[producer];
    if (maker->turn == Turn::last && options_.micro_batches > 1) {
      const auto* sum = std::get_if<ops::Collective>(&maker->op);
      // Small ones that tensor ranks have whole: they stay.
      if (sum == nullptr || sum->axis == ops::Axis::tensor || sum->axis == ops::Axis::tensor_inner) return;
      base::not_legal(
          "\"offload.gradients\" moves gradients out after every micro-batch, but the data ranks keep them whole until the last of {}; "
          "use \"zero\": 2 or 3 with \"keep_grads\": false, or one micro-batch",
          options_.micro_batches);
    }
    // Back along what works in the same memory.
    for (bool found = true; found;) {
      found = false;
      producer = old_.values[leaving.first].producer;
      maker = &old_.nodes[producer];
      for (const ops::Alias& alias : ops::aliases_of(maker->op)) {
        if (!alias.required || maker->outputs[static_cast<std::size_t>(alias.output)] != leaving.first) continue;
        leaving.first = maker->inputs[static_cast<std::size_t>(alias.input)];
        found = true;
        break;
      }
    }
    while (stretches_[leaving.made].end <= producer.index) ++leaving.made;
    leaving.home = home_of(gradient);
    leaving_of_[leaving.last.index] = leaving_.size();
    leaving_.push_back(leaving);
    for (graph::Parameter& parameter : new_.parameters) {
      if (parameter.gradient == leaving.last) parameter.gradient_leaves = true;
    }
  }

  // Where it would wait for the next step, if it does.
  ValueId home_of(ValueId gradient) {
    if (const auto waits = pending_.find(gradient.index); waits != pending_.end()) {
      new_.values[waits->second].tier = options_.tier;
      return waits->second;
    }
    const graph::Value& value = old_.values[gradient];
    return new_.add_value({.name = value.name + ".kept",
                           .type = value.type,
                           .role = graph::Role::gradient,
                           .block = value.block,
                           .tier = options_.tier,
                           .all_micro_batches = true});
  }

  std::vector<ValueId> make(const ops::Op& op, std::vector<ValueId> inputs, BlockId block, Phase phase, Turn turn,
                            const std::string& name) {
    std::vector<ValueId> made = new_.add_node(op, std::move(inputs), block, phase, name);
    new_.nodes[NodeId{static_cast<std::uint32_t>(new_.nodes.size() - 1)}].turn = turn;
    return made;
  }

  // What earlier micro-batches left comes back for a stretch that adds to it: one stretch ahead of it.
  void begin_stretch(std::size_t index) {
    const Stretch& here = stretches_[index];
    if (options_.micro_batches == 1 || !graph::runs_per_micro_batch(here.phase)) return;
    bring_back(index, here);
    if (index + 1 == stretches_.size()) return;
    const Stretch& next = stretches_[index + 1];
    if (next.phase == here.phase && in_a_row(old_, here, next, options_.stages)) bring_back(index + 1, here);
  }

  void bring_back(std::size_t index, const Stretch& issued) {
    if (!brought_.insert(index).second) return;
    const Stretch& wanted = stretches_[index];
    std::vector<std::pair<const Leaving*, ValueId>> near;
    for (const Leaving& leaving : leaving_) {
      if (leaving.made != index) continue;
      ValueId from = leaving.home;
      if (options_.tier == Tier::disk)
        from = make(ops::Move{.from = Tier::disk, .to = Tier::host}, {from}, wanted.block, issued.phase, Turn::later,
                    new_.values[from].name + ".near")[0];
      near.emplace_back(&leaving, from);
    }
    for (const auto& [leaving, from] : near) {
      const ValueId back = make(ops::Move{.from = Tier::host, .to = Tier::device}, {from}, wanted.block, issued.phase, Turn::later,
                                new_.values[from].name + ".back")[0];
      new_.values[back].in_memory_of = leaving->first;
    }
  }

  void copy(Node node) {
    if (node.phase == Phase::update) {
      if (std::holds_alternative<ops::Move>(node.op) && leaving_of_.contains(node.inputs[0].index)) return;  // it has gone there
      for (ValueId& input : node.inputs) {
        if (const auto found = leaving_of_.find(input.index); found != leaving_of_.end()) input = leaving_[found->second].put;
      }
    }
    const NodeId id = new_.nodes.next_id();
    for (ValueId output : node.outputs) {
      new_.values[output].producer = id;
      if (leaving_of_.contains(output.index)) ready_.push_back(leaving_of_.at(output.index));
    }
    new_.nodes.add(std::move(node));
  }

  // The gradients that the stretch completed go out.
  void end_stretch(const Stretch& stretch) {
    std::vector<ValueId> near;
    for (std::size_t index : ready_) {
      Leaving& leaving = leaving_[index];
      const std::string& name = new_.values[leaving.last].name;
      if (options_.tier == Tier::host) {
        leaving.put = make(ops::Move{.from = Tier::device, .to = Tier::host, .into = true}, {leaving.last, leaving.home}, stretch.block,
                           stretch.phase, Turn::each, name + ".put")[0];
      } else {
        near.push_back(make(ops::Move{.from = Tier::device, .to = Tier::host}, {leaving.last}, stretch.block, stretch.phase, Turn::each,
                            name + ".near")[0]);
      }
    }
    for (std::size_t index = 0; index < near.size(); ++index) {
      Leaving& leaving = leaving_[ready_[index]];
      leaving.put = make(ops::Move{.from = Tier::host, .to = Tier::disk, .into = true}, {near[index], leaving.home}, stretch.block,
                         stretch.phase, Turn::each, new_.values[leaving.last].name + ".put")[0];
    }
    ready_.clear();
  }

  const Graph& old_;
  Graph new_;
  StoreGradients options_;
  std::vector<Stretch> stretches_;
  std::vector<Leaving> leaving_;
  std::map<std::uint32_t, std::size_t> leaving_of_;  // old gradient -> which of them
  std::map<std::uint32_t, ValueId> pending_;         // old gradient -> where it waits for the next step
  std::set<std::size_t> brought_;                    // stretches for which gradients have come back
  std::vector<std::size_t> ready_;                   // gradients that the stretch has completed
};

}  // namespace

Graph store_gradients(const Graph& graph, const StoreGradients& options) { return Store(graph, options).run(); }

}  // namespace plimsoll::lowering

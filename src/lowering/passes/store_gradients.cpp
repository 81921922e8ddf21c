#include "lowering/passes/store_gradients.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "graph/rewrite.h"
#include "lowering/passes/stretches.h"

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

// A gradient that leaves. Homes are numbered.
struct LeavingGradient {
  ValueId last;          // as the update reads it
  ValueId first;         // what the first operator makes of it, in the same memory
  std::size_t home = 0;  // where it lives
  std::size_t made = 0;  // the stretch that makes `first`
};

// What two stretches with others between them add to, as head and embedding do to a tied table's gradient, is away in between.
struct Pause {
  ValueId last;             // as the earlier of them leaves it
  ValueId back;             // as the later one finds it
  std::size_t home = 0;     // where it waits
  std::size_t resumes = 0;  // the later stretch
};

// On its way out.
struct Going {
  ValueId gradient;
  std::size_t home = 0;
};

class GradientStore {
 public:
  GradientStore(const Graph& old, const StoreGradients& options)
      : old_(old), rewrite_(old), new_(rewrite_.to()), options_(options), stretches_(stretches_of(old)) {
    for (const Node& node : old.nodes) {
      if (node.phase == Phase::update && ops::is_copy(node.op)) pending_[node.inputs[0].index] = node.inputs[1];
    }
    for (const Node& node : old.nodes) {
      if (graph::runs_per_micro_batch(node.phase) && ops::sums_squares(node.op)) consider(node.inputs[1]);
    }
  }

  Graph run() {
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      const Stretch& stretch = stretches_[index];
      begin_stretch(index);
      for (std::uint32_t node = stretch.begin; node < stretch.end; ++node) copy(old_.nodes[NodeId{node}]);
      end_stretch(stretch);
    }
    return rewrite_.take();
  }

 private:
  void consider(ValueId gradient) {
    const Node& maker = old_.nodes[old_.values[gradient].producer];
    if (maker.turn == Turn::last && options_.micro_batches > 1) {
      // Small ones that tensor ranks have whole: they stay.
      if (!ops::is_collective(maker.op) || ops::is_of(std::get<ops::Collective>(maker.op).axis, ops::Axis::tensor)) return;
      base::not_legal(
          "\"offload.gradients\" moves gradients out after every micro-batch, but the data ranks keep them whole until the last of {}; "
          "use \"zero\": 2 or 3 with \"keep_grads\": false, or one micro-batch",
          options_.micro_batches);
    }
    LeavingGradient leaving{.last = gradient, .first = gradient, .home = home_of(gradient)};
    leaving.first = walk_back(gradient, [&](ValueId last) {
      new_.values[last].begins_gradient = true;
      // Ranks may add up what waits here to less than it: that has no room for it.
      return old_.values[last].type == old_.values[gradient].type ? leaving.home : add_home(last);
    });
    leaving.made = stretch_of(old_.values[leaving.first].producer);
    // What ranks add up into another place, each micro-batch's by itself, pauses too.
    for (ValueId own = added_up(leaving.first); own.valid(); own = added_up(own))
      own = walk_back(own, [&](ValueId last) { return add_home(last); });
    leaving_of_[leaving.last.index] = leaving_.size();
    leaving_.push_back(leaving);
    for (graph::Parameter& parameter : new_.parameters) {
      if (parameter.gradient == leaving.last) parameter.gradient_leaves = true;
    }
  }

  std::size_t stretch_of(NodeId node) const {
    const auto after = std::upper_bound(stretches_.begin(), stretches_.end(), node.index,
                                        [](std::uint32_t index, const Stretch& stretch) { return index < stretch.begin; });
    return static_cast<std::size_t>(after - stretches_.begin()) - 1;
  }

  // What the operator that makes `value` works on in place to make it, if it does.
  ValueId worked_on(ValueId value) const {
    const Node& maker = old_.nodes[old_.values[value].producer];
    for (const ops::Alias& alias : ops::aliases_of(maker.op)) {
      if (alias.required && maker.outputs[static_cast<std::size_t>(alias.output)] == value)
        return maker.inputs[static_cast<std::size_t>(alias.input)];
    }
    return {};
  }

  // What ranks, or micro-batches, add up to make `value`, where that is not in the same memory.
  ValueId added_up(ValueId value) const {
    const Node& maker = old_.nodes[old_.values[value].producer];
    if (!ops::is_collective(maker.op) && !std::holds_alternative<ops::Accumulate>(maker.op)) return {};
    const auto output = std::find(maker.outputs.begin(), maker.outputs.end(), value);
    return maker.inputs[static_cast<std::size_t>(output - maker.outputs.begin())];
  }

  // To the first of what works in the same memory. Where other stretches lie between two that do, there is a pause, in the home that
  // `home` gives it.
  template <typename Home>
  ValueId walk_back(ValueId value, const Home& home) {
    for (std::size_t made = stretch_of(old_.values[value].producer);;) {
      const ValueId before = worked_on(value);
      if (!before.valid()) return value;
      const std::size_t resumes = std::exchange(made, stretch_of(old_.values[before].producer));
      if (made + 1 < resumes) pauses_.push_back({.last = before, .back = {}, .home = home(before), .resumes = resumes});
      value = before;
    }
  }

  // Where it would wait for the next step, if it does.
  std::size_t home_of(ValueId gradient) {
    if (const auto waits = pending_.find(gradient.index); waits != pending_.end()) {
      new_.values[waits->second].tier = options_.tier;
      homes_.push_back(waits->second);
      return homes_.size() - 1;
    }
    return add_home(gradient);
  }

  std::size_t add_home(ValueId gradient) {
    const graph::Value& value = old_.values[gradient];
    homes_.push_back(new_.add_value({.name = value.name + ".kept",
                                     .type = value.type,
                                     .role = graph::Role::gradient,
                                     .block = value.block,
                                     .tier = options_.tier,
                                     .all_micro_batches = true}));
    return homes_.size() - 1;
  }

  // What a stretch adds to and is not there comes back for it, one stretch ahead of it.
  void begin_stretch(std::size_t index) {
    const Stretch& here = stretches_[index];
    if (!graph::runs_per_micro_batch(here.phase)) return;
    bring_back(index, here);
    if (index + 1 == stretches_.size()) return;
    const Stretch& next = stretches_[index + 1];
    if (next.phase == here.phase && in_a_row(old_, here, next, options_.stages)) bring_back(index + 1, here);
  }

  void bring_back(std::size_t index, const Stretch& issued) {
    if (!brought_.insert(index).second) return;
    struct Coming {
      ValueId from;
      Turn turn;
      LeavingGradient* leaving;  // what earlier micro-batches left of it, or
      Pause* pause;              // what this one did
    };
    std::vector<Coming> coming;
    for (LeavingGradient& leaving : leaving_) {
      if (leaving.made == index && options_.micro_batches > 1) coming.push_back({homes_[leaving.home], Turn::later, &leaving, nullptr});
    }
    for (Pause& pause : pauses_) {
      if (pause.resumes == index) coming.push_back({homes_[pause.home], Turn::each, nullptr, &pause});
    }
    const BlockId block = stretches_[index].block;
    if (options_.tier == Tier::disk) {
      for (Coming& one : coming)
        one.from = rewrite_.make_one(ops::Move{.from = Tier::disk, .to = Tier::host}, {one.from}, {block, issued.phase, one.turn},
                                     new_.values[one.from].name + ".near");
    }
    for (const Coming& one : coming) {
      const ValueId back = rewrite_.make_one(ops::Move{.from = Tier::host, .to = Tier::device}, {one.from}, {block, issued.phase, one.turn},
                                             new_.values[one.from].name + ".back");
      if (one.leaving != nullptr) new_.values[back].in_memory_of = one.leaving->first;
      if (one.pause != nullptr) one.pause->back = back;
    }
  }

  void copy(Node node) {
    if (node.phase == Phase::update) {
      if (ops::is_copy(node.op) && leaving_of_.contains(node.inputs[0].index)) return;  // it has gone there
      for (ValueId& input : node.inputs) {
        if (const auto found = leaving_of_.find(input.index); found != leaving_of_.end()) input = homes_[leaving_[found->second].home];
      }
    }
    for (const Pause& pause : pauses_) {
      if (pause.back.valid()) std::replace(node.inputs.begin(), node.inputs.end(), pause.last, pause.back);
    }
    for (ValueId output : node.outputs) {
      if (const auto found = leaving_of_.find(output.index); found != leaving_of_.end())
        ready_.push_back({output, leaving_[found->second].home});
      for (const Pause& pause : pauses_) {
        if (pause.last == output) ready_.push_back({output, pause.home});
      }
    }
    rewrite_.keep(std::move(node));
  }

  // The gradients that the stretch completed go out.
  void end_stretch(const Stretch& stretch) {
    const auto go = [&](const ops::Move& move, std::vector<ValueId> inputs, const Going& going, const char* name) {
      return rewrite_.make_one(move, std::move(inputs), {stretch.block, stretch.phase}, new_.values[going.gradient].name + name);
    };
    for (Going& going : ready_) {
      if (options_.tier == Tier::disk) going.gradient = go({.from = Tier::device, .to = Tier::host}, {going.gradient}, going, ".near");
    }
    const Tier from = options_.tier == Tier::disk ? Tier::host : Tier::device;
    for (const Going& going : ready_) {
      ValueId& home = homes_[going.home];
      home = go({.from = from, .to = options_.tier, .into = true}, {going.gradient, home}, going, ".put");
    }
    ready_.clear();
  }

  const Graph& old_;
  graph::Rewrite rewrite_;
  Graph& new_;
  StoreGradients options_;
  std::vector<Stretch> stretches_;
  std::vector<LeavingGradient> leaving_;
  std::map<std::uint32_t, std::size_t> leaving_of_;  // old gradient -> which of them
  std::map<std::uint32_t, ValueId> pending_;         // old gradient -> where it waits for the next step
  std::set<std::size_t> brought_;                    // stretches for which gradients have come back
  std::vector<Pause> pauses_;
  std::vector<ValueId> homes_;  // the newest value of each
  std::vector<Going> ready_;    // gradients that the stretch has completed, or does not go on with
};

}  // namespace

Graph store_gradients(const Graph& graph, const StoreGradients& options) { return GradientStore(graph, options).run(); }

}  // namespace plimsoll::lowering

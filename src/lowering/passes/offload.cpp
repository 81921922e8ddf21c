#include "lowering/passes/offload.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "graph/rewrite.h"
#include "graph/scalar_chains.h"
#include "lowering/passes/carry_update.h"
#include "lowering/passes/optimizer_tiers.h"
#include "lowering/passes/stretches.h"
#include "lowering/passes/update_groups.h"
#include "plan/plan.h"

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

// While the update reads one bucket, the next one's gradients come.
constexpr std::int64_t kBuckets = 2;

using Part = UpdatePart;
using Group = UpdateGroup;

// The update alone: the weight in the model's type is made of the master afterwards.
ops::Op without_copy(const ops::Op& op) { return ops::definition_of(op).without_copy(op).value_or(op); }

class Offload {
 public:
  Offload(const Graph& old, const OffloadOptions& options)
      : old_(old),
        chains_(old),
        rewrite_(old),
        new_(rewrite_.to()),
        options_(options),
        stretches_(stretches_of(old)),
        work_(stretches_.size()),
        scalars_(old.pending) {
    const std::vector<Tier> tiers = optimizer_tiers(old_, options.share);
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      const graph::Parameter& parameter = old_.parameters[index];
      if (parameter.frozen) continue;
      if (tiers[index] == Tier::device) {
        stay_.insert(parameter.master.index);
        continue;
      }
      PLIMSOLL_CHECK(parameter.master != parameter.weight || old_.values[parameter.weight].tier == tiers[index], "{} has no master",
                     parameter.name);
      new_.values[parameter.master].tier = tiers[index];
      for (ValueId state : parameter.states) {
        if (new_.values[state].tier == Tier::device) new_.values[state].tier = tiers[index];  // gradients that wait may have one already
      }
    }
    if (old.pending.valid()) new_.values[old.pending].tier = Tier::host;
    if (options.ahead_of_use) {
      find_waiting_work();
    } else if (options.under_backward || old.pending.valid()) {
      find_work();
    }
  }

  Graph run() {
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      const Stretch& stretch = stretches_[index];
      for (const auto& [node, block] : work_[index].ahead) {
        place_ = {.block = block, .phase = stretch.phase, .turn = Turn::first};
        sort_in(old_.nodes[node]);
      }
      issue_groups();
      place_ = {.block = stretch.block, .phase = Phase::update};
      for (std::uint32_t node = stretch.begin; node < stretch.end; ++node) {
        if (stretch.phase != Phase::update) {
          add(old_.nodes[NodeId{node}]);
        } else if (!early_.contains(node)) {
          sort_in(old_.nodes[NodeId{node}]);
        }
      }
      if (stretch.phase == Phase::begin && !scalars_.valid() && options_.under_backward) bring_scalars(stretch);
      const Work& work = work_[index];
      if (!work.starts.empty()) place_ = {.block = stretch.block, .phase = stretch.phase, .turn = Turn::first};
      for (NodeId node : work.starts) sort_in(old_.nodes[node]);
      if (!work.ready.empty()) place_ = {.block = stretch.block, .phase = stretch.phase, .turn = Turn::last};
      for (NodeId node : work.ready) sort_in(old_.nodes[node]);
      const bool last = index + 1 == stretches_.size();
      if (stretch.phase == Phase::update && !last && stretches_[index + 1].phase == Phase::update) continue;
      issue_groups();
      const bool ends = last || !in_a_row(old_, stretch, stretches_[index + 1], options_.stages);
      if (ends || !work.puts.empty() || !work.waiting.empty()) finish_group();
      if (!work.puts.empty() || !work.waiting.empty())
        place_ = {
            .block = stretch.block, .phase = stretch.phase, .turn = graph::runs_per_micro_batch(stretch.phase) ? Turn::last : Turn::each};
      for (const auto& [part, weight] : work.puts) put_weight(part, weight);
      for (NodeId node : work.waiting) keep(old_.nodes[node]);
    }
    for (const auto& [dtype, buckets] : buckets_) {
      for (ValueId bucket : buckets.memory) new_.values[bucket].type.shape = {buckets.used};
    }
    return rewrite_.take();
  }

 private:
  // ---- when

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
      if (ops::is_copy(node.op)) keep_at(NodeId{id}, made[node.inputs[0].index]);
      if (!is_update(node.op)) continue;
      std::size_t ready = made[node.inputs[1].index];
      for (std::size_t input = 2; input < node.inputs.size(); ++input) ready = std::max(ready, read[root(node.inputs[input]).index]);
      // A tensor rank may have a weight that others read for it.
      while (late() && stretches_[ready].phase == Phase::begin) ++ready;
      if (!graph::runs_per_micro_batch(stretches_[ready].phase)) continue;
      early_.insert(id);
      if (late() && new_.values[node.inputs[2]].tier == Tier::host && has_copy(node.op) &&
          old_.values[node.inputs.back()].tier == Tier::device) {
        put_at_[node.outputs.back().index] = ready;
      } else {
        work_[ready].ready.push_back(NodeId{id});
      }
    }
    if (!put_at_.empty()) spread();
  }

  // What the step before left is done ahead of the weights' first use; what this one leaves goes out behind whoever makes it.
  void find_waiting_work() {
    std::vector<std::vector<AheadOfUse>> ahead = lowering::ahead_of_use(old_, stretches_, options_.prefetch, options_.stages);
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      for (const AheadOfUse& each : ahead[index]) early_.insert(each.node.index);
      work_[index].ahead = std::move(ahead[index]);
    }
    std::vector<std::size_t> made(old_.values.size(), 0);  // the stretch that makes it
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      for (std::uint32_t id = stretches_[index].begin; id < stretches_[index].end; ++id) {
        for (ValueId output : old_.nodes[NodeId{id}].outputs) made[output.index] = index;
      }
    }
    for (std::uint32_t id = 0; id < old_.nodes.size(); ++id) {
      const Node& node = old_.nodes[NodeId{id}];
      if (node.phase == Phase::update && ops::is_copy(node.op)) keep_at(NodeId{id}, made[root(node.inputs[0]).index]);
    }
  }

  bool late() const { return old_.pending.valid(); }

  // What waits for the next step: behind the stretch that makes it, or in the update.
  void keep_at(NodeId node, std::size_t stretch) {
    early_.insert(node.index);
    if (!graph::runs_per_micro_batch(stretches_[stretch].phase)) {
      while (stretches_[stretch].phase != Phase::update ||
             (stretch + 1 < stretches_.size() && stretches_[stretch + 1].phase == Phase::update))
        ++stretch;
    }
    work_[stretch].waiting.push_back(node);
  }

  // Updates that are a step late keep the host busy for as long as the device is: evenly under the forward and the backward pass, which
  // takes twice the time, in the order in which the backward pass has done with the weights.
  void spread() {
    std::vector<std::pair<std::size_t, NodeId>> order;
    double elements = 0.0;
    for (std::uint32_t id = 0; id < old_.nodes.size(); ++id) {
      const Node& node = old_.nodes[NodeId{id}];
      if (!early_.contains(id) || !is_update(node.op) || !put_at_.contains(node.outputs.back().index)) continue;
      order.emplace_back(put_at_.at(node.outputs.back().index), NodeId{id});
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
      work_[std::min(stretch, last)].starts.push_back(node);
      done += static_cast<double>(old_.values[old_.nodes[node].inputs[2]].type.shape.elements());
    }
  }

  ValueId root(ValueId id) const { return root_of(old_, id); }

  // ---- groups

  Group& group_here() {
    if (groups_.empty() || groups_.back().place != place_) groups_.push_back({.place = place_});
    return groups_.back();
  }

  void sort_in(const Node& node) {
    if (ops::is_view(node.op)) return;
    if (!is_update(node.op)) return group_here().after.push_back(node);
    if (stay_.contains(root(node.inputs[2]).index)) return update_in_place(node);
    const std::int64_t elements = old_.values[node.inputs[2]].type.shape.elements();
    const std::int64_t in_bucket = options_.bucket.count / base::size_of(base::DType::f32);
    const std::int64_t part = std::max(kPartUnit, in_bucket / kPartUnit * kPartUnit);
    for (std::int64_t first = 0; first < elements; first += part) {
      const std::int64_t count = std::min(part, elements - first);
      const std::int64_t bytes = count * base::size_of(base::DType::f32);
      if (Group& group = group_here(); !group.parts.empty() && group.bytes + bytes > options_.bucket.count)
        groups_.push_back({.place = place_});
      groups_.back().parts.push_back({.node = node, .first = first, .count = count, .whole = count == elements});
      groups_.back().bytes += bytes;
    }
  }

  // On the device, with the scalars as they are: before a verdict they differ from those after it in sums that updates do not read.
  void update_in_place(Node node) {
    for (ValueId input : node.inputs) need(input);
    if (place_.turn == Turn::last) node.inputs[0] = newest_scalars_;
    add_here(std::move(node));
  }

  // Where the host computes on a stream of its own, or gradients have come before, each group is updated at once. Else one comes while the
  // one before it is updated.
  void issue_groups() {
    for (Group& group : groups_) {
      place_ = group.place;
      bring(group);
      const bool at_once = options_.beside || late();
      if (!at_once) finish_group();
      under_way_ = std::move(group);
      if (at_once) finish_group();
    }
    groups_.clear();
  }

  void finish_group() {
    if (!under_way_) return;
    place_ = under_way_->place;
    update(*under_way_);
    under_way_.reset();
  }

  // ---- nodes

  void add(Node node) {
    node.ahead = false;  // this is where it runs
    for (ValueId output : node.outputs) {
      if (chains_.of(output) == old_.scalars) newest_scalars_ = output;
    }
    rewrite_.keep(std::move(node));
  }

  // A node of the update, where that is under way.
  void add_here(Node node) {
    node.block = place_.block;
    node.phase = place_.phase;
    node.turn = place_.turn;
    add(std::move(node));
  }

  std::vector<ValueId> make_all(const ops::Op& op, std::vector<ValueId> inputs, const std::string& name, Tier tier) {
    std::vector<ValueId> made = rewrite_.make(op, std::move(inputs), place_, name);
    for (ValueId output : made) new_.values[output].tier = tier;
    return made;
  }

  ValueId make(const ops::Op& op, std::vector<ValueId> inputs, const std::string& name, Tier tier) {
    return make_all(op, std::move(inputs), name, tier)[0];
  }

  // A view that belongs to the update, with those that it is a view of.
  void need(ValueId value) {
    const NodeId maker = old_.values[value].producer;
    if (!maker.valid() || old_.nodes[maker].phase != Phase::update || !seen_.insert(value.index).second) return;
    need(old_.nodes[maker].inputs[0]);
    add_here(old_.nodes[maker]);
  }

  // The part's elements of a value, where it is.
  ValueId part_of(ValueId value, const Part& part) {
    if (part.whole) return value;
    const std::string name = fmt::format("{}.from{}", new_.values[value].name, part.first);
    return make(ops::Slice{.first = part.first, .count = part.count}, {value}, name, new_.values[value].tier);
  }

  // The value in the host's memory.
  ValueId near(ValueId value) {
    const Tier tier = new_.values[value].tier;
    if (tier == Tier::host) return value;
    return make(ops::Move{.from = tier, .to = Tier::host}, {value}, new_.values[value].name + ".host", Tier::host);
  }

  // Without a verdict, what an update reads of them is there when the step has begun.
  void bring_scalars(const Stretch& begin) {
    place_ = {.block = begin.block, .phase = begin.phase};
    for (std::uint32_t node = begin.begin; node < begin.end; ++node) {
      const Node& begins = old_.nodes[NodeId{node}];
      if (chains_.of(begins.outputs[0]) == old_.scalars) scalars_ = near(begins.outputs[0]);
    }
    new_.values[scalars_].all_micro_batches = true;
  }

  // Gradients of one type on their way.
  struct Buckets {
    std::vector<ValueId> memory;
    std::int64_t next = 0;  // free element of the bucket in hand
    std::int64_t used = 0;  // elements of the fullest
  };

  // A gradient of the device in the bucket in hand. The memory is that of the group so many before, so the copy waits for its update.
  ValueId through_bucket(ValueId gradient) {
    const base::TensorType type = new_.values[gradient].type;
    Buckets& buckets = buckets_[type.dtype];
    while (std::ssize(buckets.memory) < kBuckets) {
      const std::string name = fmt::format("{}{}.{}", kBucketName, buckets.memory.size(), base::name_of(type.dtype));
      constexpr std::int64_t kMoreThanAny = std::int64_t{1} << 40;  // elements; in the end, as many as are used
      buckets.memory.push_back(new_.add_value({.name = name,
                                               .type = {type.dtype, {kMoreThanAny}},
                                               .role = graph::Role::gradient,
                                               .block = place_.block,
                                               .tier = Tier::host,
                                               .all_micro_batches = true}));
    }
    const std::string name = new_.values[gradient].name;
    const std::int64_t count = type.shape.elements();
    const ValueId bucket = buckets.memory[static_cast<std::size_t>(bucket_in_hand_)];
    const ValueId flat = make(ops::Slice{.first = buckets.next, .count = count}, {bucket}, name + ".bucket", Tier::host);
    const ValueId shaped = make(ops::View{.shape = type.shape}, {flat}, name + ".room", Tier::host);
    const std::int64_t unit = plan::kAlignment.count / base::size_of(type.dtype);
    buckets.next += (count + unit - 1) / unit * unit;
    buckets.used = std::max(buckets.used, buckets.next);
    return make(ops::Move{.from = Tier::device, .to = Tier::host, .into = true}, {gradient, shaped}, name + ".host", Tier::host);
  }

  void next_bucket() {
    bucket_in_hand_ = (bucket_in_hand_ + 1) % kBuckets;
    for (auto& [dtype, buckets] : buckets_) buckets.next = 0;
  }

  // Brings what the updates of a group read: gradients first, which come another way than what is on disk.
  void bring(Group& group) {
    next_bucket();
    for (Part& part : group.parts) {
      for (ValueId input : part.node.inputs) need(input);
      if (!scalars_.valid()) scalars_ = near(part.node.inputs[0]);
      const ValueId gradient = part_of(part.node.inputs[1], part);
      const bool passes = options_.under_backward && new_.values[gradient].tier == Tier::device;
      part.gradient = passes ? through_bucket(gradient) : near(gradient);
    }
    for (Part& part : group.parts) {
      const std::size_t states = part.node.outputs.size() - (has_copy(part.node.op) ? 1 : 0);
      for (std::size_t state = 0; state < states; ++state) {
        part.home.push_back(part_of(part.node.inputs[2 + state], part));
        part.near.push_back(near(part.home.back()));
      }
    }
  }

  void update(const Group& group) {
    std::vector<std::vector<ValueId>> made;
    for (const Part& part : group.parts) made.push_back(update(part));
    for (std::size_t index = 0; index < group.parts.size(); ++index) {
      const Part& part = group.parts[index];
      for (std::size_t state = 0; state < part.home.size(); ++state) made[index][state] = put(made[index][state], part.home[state], {});
    }
    for (std::size_t index = 0; index < group.parts.size(); ++index) {
      const Part& part = group.parts[index];
      if (has_copy(part.node.op) && !copies_here(part) && !later(part)) made[index].back() = put_weight(part, made[index].back());
      // Whoever reads the weight afterwards reads what the update made of it.
      if (options_.ahead_of_use && part.whole) {
        const bool copy = has_copy(part.node.op);
        rewrite_.replace(copy ? part.node.inputs.back() : part.node.inputs[2], copy ? made[index].back() : made[index][0]);
      }
      if (later(part)) work_[*later(part)].puts.emplace_back(part, made[index].back());
    }
    for (const Node& node : group.after) add_here(node);
  }

  // Whether the update itself writes the weight in the model's type.
  bool copies_here(const Part& part) const { return has_copy(part.node.op) && new_.values[part.node.inputs.back()].tier == Tier::host; }

  // The stretch behind which the weight may change, where that is not yet so.
  std::optional<std::size_t> later(const Part& part) const {
    const auto found = put_at_.find(part.node.outputs.back().index);
    return found == put_at_.end() ? std::nullopt : std::optional(found->second);
  }

  ValueId in_model_type(const Part& part, ValueId master) {
    const base::DType dtype = old_.values[part.node.inputs.back()].type.dtype;
    if (dtype == new_.values[master].type.dtype) return master;
    return make(ops::Cast{.dtype = dtype}, {master}, new_.values[master].name + ".cast", Tier::host);
  }

  ValueId put_weight(const Part& part, ValueId weight) {
    const ValueId target = part_of(part.node.inputs.back(), part);
    if (!part.whole) rewrite_.replace(part.node.outputs.back(), part.node.inputs.back());
    return put(weight, target, part.whole ? part.node.outputs.back() : ValueId{});
  }

  // To where it waits for the next step.
  void keep(Node node) {
    need(node.inputs[0]);
    const Tier tier = new_.values[node.inputs[1]].tier;
    if (tier == Tier::disk) node.inputs[0] = near(node.inputs[0]);
    node.op = ops::Move{.from = tier == Tier::disk ? Tier::host : Tier::device, .to = tier, .into = true};
    new_.values[node.outputs[0]].tier = tier;
    add_here(std::move(node));
  }

  // Runs the update in the host's memory; master, states, and last the weight in the model's type.
  std::vector<ValueId> update(const Part& part) {
    std::vector<ValueId> inputs{scalars_, part.gradient};
    inputs.insert(inputs.end(), part.near.begin(), part.near.end());
    const bool here = copies_here(part);
    if (here) inputs.push_back(part_of(part.node.inputs.back(), part));
    const std::string name = fmt::format("{}.new", new_.values[part.near[0]].name);
    std::vector<ValueId> made = make_all(here ? part.node.op : without_copy(part.node.op), inputs, name, Tier::host);
    if (!has_copy(part.node.op) || here) return made;
    // With the update it is one pass over the host's memory, also where the device takes it later in the step.
    made.push_back(in_model_type(part, made[0]));
    if (later(part) && made.back() != made[0]) new_.values[made.back()].all_micro_batches = true;
    return made;
  }

  // From the host's memory to where it lives; `as` names the result where somebody reads it.
  ValueId put(ValueId value, ValueId home, ValueId as) {
    const Tier tier = new_.values[home].tier;
    if (tier == Tier::host) return value;
    const ops::Move move{.from = Tier::host, .to = tier, .into = true};
    if (!as.valid()) return make(move, {value, home}, new_.values[home].name + ".put", tier);
    new_.values[as].tier = tier;
    add_here({.op = move, .inputs = {value, home}, .outputs = {as}});
    return as;
  }

  const Graph& old_;
  graph::ScalarChains chains_;
  graph::Rewrite rewrite_;  // results that were made in parts are replaced by what sees them all
  Graph& new_;
  OffloadOptions options_;
  std::vector<Stretch> stretches_;

  // What is done around a stretch outside the update's own phase.
  struct Work {
    std::vector<AheadOfUse> ahead;               // updates that waited, before the stretch
    std::vector<NodeId> starts;                  // updates whose weights change later, in a step's first micro-batch
    std::vector<NodeId> ready;                   // updates
    std::vector<std::pair<Part, ValueId>> puts;  // weights that may change now, and what they become
    std::vector<NodeId> waiting;                 // what is kept for the next step
  };
  std::vector<Work> work_;                       // by stretch
  std::map<std::uint32_t, std::size_t> put_at_;  // updated weight -> the stretch behind which it may change
  std::set<std::uint32_t> early_;                // old nodes that are done so
  std::set<std::uint32_t> stay_;                 // masters of what is updated on the device
  graph::Site place_;                            // where what is added belongs
  std::vector<Group> groups_;
  std::optional<Group> under_way_;  // brought and not yet updated
  std::set<std::uint32_t> seen_;    // views of the update that have been added
  std::map<base::DType, Buckets> buckets_;
  std::int64_t bucket_in_hand_ = 0;
  ValueId scalars_;         // in the host's memory
  ValueId newest_scalars_;  // on the device
};

}  // namespace

Graph offload_optimizer(const Graph& graph, const OffloadOptions& options) {
  for (const Node& node : graph.nodes) {
    if (is_update(node.op)) return Offload(graph, options).run();
  }
  return graph;
}

}  // namespace plimsoll::lowering

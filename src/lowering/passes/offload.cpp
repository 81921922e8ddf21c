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
#include "lowering/passes/update_times.h"
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
        puts_(stretches_.size()),
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
    times_ = update_times(old_, new_.values, stretches_, options);
  }

  Graph run() {
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      const Stretch& stretch = stretches_[index];
      for (const auto& [node, block] : times_.work[index].ahead) {
        place_ = {.block = block, .phase = stretch.phase, .turn = Turn::first};
        sort_in(old_.nodes[node]);
      }
      issue_groups();
      place_ = {.block = stretch.block, .phase = Phase::update};
      for (std::uint32_t node = stretch.begin; node < stretch.end; ++node) {
        if (stretch.phase != Phase::update) {
          add(old_.nodes[NodeId{node}]);
        } else if (!times_.early.contains(node)) {
          sort_in(old_.nodes[NodeId{node}]);
        }
      }
      if (stretch.phase == Phase::begin && !scalars_.valid() && options_.under_backward) bring_scalars(stretch);
      const UpdateTimes::Work& work = times_.work[index];
      const auto& puts = puts_[index];
      if (!work.starts.empty()) place_ = {.block = stretch.block, .phase = stretch.phase, .turn = Turn::first};
      for (NodeId node : work.starts) sort_in(old_.nodes[node]);
      if (!work.ready.empty()) place_ = {.block = stretch.block, .phase = stretch.phase, .turn = Turn::last};
      for (NodeId node : work.ready) sort_in(old_.nodes[node]);
      const bool last = index + 1 == stretches_.size();
      if (stretch.phase == Phase::update && !last && stretches_[index + 1].phase == Phase::update) continue;
      issue_groups();
      const bool ends = last || !in_a_row(old_, stretch, stretches_[index + 1], options_.stages);
      if (ends || !puts.empty() || !work.waiting.empty()) finish_group();
      if (!puts.empty() || !work.waiting.empty())
        place_ = {
            .block = stretch.block, .phase = stretch.phase, .turn = graph::runs_per_micro_batch(stretch.phase) ? Turn::last : Turn::each};
      for (const auto& [part, weight] : puts) put_weight(part, weight);
      for (NodeId node : work.waiting) keep(old_.nodes[node]);
    }
    for (const auto& [dtype, buckets] : buckets_) {
      for (ValueId bucket : buckets.memory) new_.values[bucket].type.shape = {buckets.used};
    }
    return rewrite_.take();
  }

 private:
  bool late() const { return old_.pending.valid(); }

  ValueId root(ValueId id) const { return root_of(old_, id); }

  // ---- groups

  Group& group_here() {
    if (groups_.empty() || groups_.back().place != place_) groups_.push_back({.place = place_});
    return groups_.back();
  }

  void sort_in(const Node& node) {
    if (ops::is_view(node.op)) return;
    if (ops::prelude_in(node.op) != nullptr) return add_prelude(node);
    if (comes_of_prelude(node)) return add_before_update(node);
    if (!is_update(node.op)) return group_here().after.push_back(node);
    if (stays(node)) return update_in_place(node);
    for (Part& part : parts_of(node)) {
      const std::int64_t bytes = part.count * base::size_of(base::DType::f32);
      if (Group& group = group_here(); !group.parts.empty() && group.bytes + bytes > options_.bucket.count)
        groups_.push_back({.place = place_});
      groups_.back().parts.push_back(std::move(part));
      groups_.back().bytes += bytes;
    }
  }

  bool stays(const Node& node) const { return stay_.contains(root(node.inputs[2]).index); }

  // Of an update, or its prelude.
  std::vector<Part> parts_of(const Node& node) const {
    const std::int64_t elements = old_.values[node.inputs[2]].type.shape.elements();
    const std::int64_t in_bucket = options_.bucket.count / base::size_of(base::DType::f32);
    const std::int64_t most = std::max(kPartUnit, in_bucket / kPartUnit * kPartUnit);
    std::vector<Part> parts;
    for (std::int64_t first = 0; first < elements; first += most) {
      const std::int64_t count = std::min(most, elements - first);
      parts.push_back({.node = node, .first = first, .count = count, .whole = count == elements});
    }
    return parts;
  }

  // ---- preludes: part by part in the host's memory, and what they make on the device, where ranks exchange it

  bool comes_of_prelude(const Node& node) const {
    return !is_update(node.op) &&
           std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return of_prelude_.contains(root(id).index); });
  }

  void add_before_update(const Node& node) {
    for (ValueId input : node.inputs) need(input);
    for (ValueId output : node.outputs) {
      of_prelude_.insert(output.index);
      seen_.insert(output.index);
    }
    add_here(node);
  }

  void add_prelude(const Node& node) {
    issue_groups();
    finish_group();
    if (stays(node)) return add_before_update(node);
    const ops::UpdatePrelude& prelude = *ops::prelude_in(node.op);
    const ValueId old = node.outputs[0];
    const base::TensorType type = old_.values[old].type;
    const std::string& name = old_.values[old].name;
    ValueId made;
    for (Part& part : parts_of(node)) {
      for (ValueId input : node.inputs) need(input);
      if (!scalars_.valid()) scalars_ = near(node.inputs[0]);
      std::vector<ValueId> inputs{scalars_};
      for (std::size_t input = 1; input < prelude.update.prelude_operand(); ++input)
        inputs.push_back(near(part_of(node.inputs[input], part)));
      if (prelude.is_sum()) {
        const bool first = !made.valid() && !prelude.into;
        if (!first) inputs.push_back(made.valid() ? made : near(rewrite_.now(node.inputs.back())));
        ops::UpdatePrelude mine = prelude;
        mine.into = !first;
        if (mine.counted >= 0) mine.counted -= part.first;
        made = make(mine, inputs, name + ".host", Tier::host);
        continue;
      }
      const ValueId step = make(prelude, inputs, name + ".host", Tier::host);
      const ValueId here = make(ops::Move{.from = Tier::host, .to = Tier::device}, {step}, name + ".here", Tier::device);
      if (part.whole) {
        made = here;
        continue;
      }
      std::vector<ValueId> put{here};
      if (made.valid()) put.push_back(made);
      const ops::PartOfDim place{.extent = type.shape.elements(), .begin = part.first, .count = part.count};
      made = make(ops::PutPart{.part = place, .into = made.valid()}, put, name + ".flat", Tier::device);
    }
    if (prelude.is_sum()) made = make(ops::Move{.from = Tier::host, .to = Tier::device}, {made}, name, Tier::device);
    if (made.valid() && new_.values[made].type.shape != type.shape) made = make(ops::View{.shape = type.shape}, {made}, name, Tier::device);
    of_prelude_.insert(old.index);
    seen_.insert(old.index);
    rewrite_.replace(old, made);
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
      if (ops::has_prelude(part.node.op)) {
        const ValueId prelude = rewrite_.now(part.node.inputs[std::get<ops::Update>(part.node.op).prelude_operand()]);
        part.prelude = near(new_.values[prelude].type == ops::parameter_sums_type() ? prelude : part_of(prelude, part));
      }
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
      if (later(part)) puts_[*later(part)].emplace_back(part, made[index].back());
    }
    for (const Node& node : group.after) ops::is_copy(node.op) ? keep(node) : add_here(node);
  }

  // Whether the update itself writes the weight in the model's type.
  bool copies_here(const Part& part) const { return has_copy(part.node.op) && new_.values[part.node.inputs.back()].tier == Tier::host; }

  // The stretch behind which the weight may change, where that is not yet so.
  std::optional<std::size_t> later(const Part& part) const {
    const auto found = times_.put_at.find(part.node.outputs.back().index);
    return found == times_.put_at.end() ? std::nullopt : std::optional(found->second);
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
    if (part.prelude.valid()) inputs.push_back(part.prelude);
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

  UpdateTimes times_;
  std::vector<std::vector<std::pair<Part, ValueId>>> puts_;  // by stretch: weights that may change behind it, and what they become
  std::set<std::uint32_t> of_prelude_;                       // values that preludes make, or that are made of those
  std::set<std::uint32_t> stay_;                             // masters of what is updated on the device
  graph::Site place_;                                        // where what is added belongs
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

#include "lowering/passes/split_data.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "graph/rewrite.h"
#include "graph/scalar_chains.h"
#include "lowering/passes/data_axes.h"
#include "lowering/passes/preludes.h"
#include "lowering/passes/weight_stretches.h"
#include "ops/step_scalars.h"

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::runs_per_micro_batch;
using graph::Turn;
using graph::Value;
using graph::ValueId;
using ops::CollectiveKind;

// The first bucket is small, so that communication starts early in the backward pass.
constexpr std::int64_t kFirstBucket = 1'000'000;

// Buckets that are reduced while the passes go on: what one brought is added when so many later ones have left.
constexpr std::size_t kUnderWay = 3;

// A parameter of the old graph and what became of it.
struct Split {
  bool split = false;         // over the ranks; else whole on each
  std::int64_t elements = 0;  // of the whole tensor (or of the slice this rank has of it)
  std::int64_t padded = 0;    // a multiple of members * kSumBlock
  ValueId gradient{};         // new: as the update reads it
};

// Shards of a bucket of gradients that a reduction leaves, to be added to what there is of earlier micro-batches.
struct Bucket {
  std::vector<std::size_t> parameters{};
  std::vector<ValueId> shards{};
};

class DataSplit {
  using Stretch = WeightStretch;

 public:
  DataSplit(const Graph& old, const strategy::Strategy& strategy, std::int32_t micro_batches)
      : old_(old),
        strategy_(strategy),
        axes_(old, strategy),
        members_(axes_.members()),
        micro_batches_(micro_batches),
        chains_(old),
        rewrite_(old, graph::Values::fresh),
        new_(rewrite_.to()),
        preludes_(
            rewrite_, [this](std::size_t tensors) { return axes_.over_shards(CollectiveKind::all_gather, tensors, false); },
            [this](const graph::Site& site, const std::vector<PreludeExchange::Piece>& pieces) {
              return gather_shards(rewrite_, axes_.over_shards(CollectiveKind::all_gather, pieces.size(), false), site, pieces);
            }) {
    for (std::size_t index = 0; index < old.parameters.size(); ++index) {
      const graph::Parameter& parameter = old.parameters[index];
      parameter_of_[parameter.weight.index] = index;
      parameter_of_[parameter.master.index] = index;
      for (ValueId state : parameter.states) parameter_of_[state.index] = index;
      if (parameter.gradient.valid()) gradient_of_[parameter.gradient.index] = index;
      splits_.push_back(split_of(parameter));
    }
    for (const Node& node : old.nodes) {
      if (node.phase == Phase::join) gradient_of_[node.outputs[0].index] = gradient_of_.at(node.inputs[0].index);
    }
    find_stretches();
  }

  Graph run() {
    add_roots();
    for (std::size_t index = 0; index < stretches_.size(); ++index) add_stretch(index);
    if (!merged_ && old_.scalars.valid()) merged(newest_scalars(), false, Phase::finish);
    Graph graph = rewrite_.take();
    for (const auto& [parameter, gradient] : kept_gradient_) graph.parameters[parameter].gradient = gradient;
    return graph;
  }

 private:
  // ---- what is split

  Split split_of(const graph::Parameter& parameter) const {
    Split split{.elements = old_.values[parameter.weight].type.shape.elements()};
    const std::int64_t unit = members_ * ops::kSumBlock;
    // Rows of a table on disk come and go whole.
    const bool same = !parameter.rows_of_table && !axes_.own(parameter);
    split.split = zero() >= (parameter.frozen ? 3 : 1) && split.elements >= unit && same;
    split.padded = (split.elements + unit - 1) / unit * unit;
    return split;
  }

  // One data rank has nobody to share anything with.
  std::int64_t zero() const { return axes_.several() ? strategy_.zero : 0; }
  // Gradients are reduced in every micro-batch and only shards are kept, instead of whole ones until the last.
  bool reduces_each() const { return zero() >= 2 && (micro_batches_ == 1 || !strategy_.keep_grads); }
  bool accumulates_shards() const { return reduces_each() && micro_batches_ > 1; }
  bool gathers_weights() const { return zero() >= 3; }

  void find_stretches() {
    stretches_ = weight_stretches(old_, [&](ValueId id) -> std::optional<std::size_t> {
      const std::optional<std::size_t> parameter = gathers_weights() ? weight_at(id) : std::nullopt;
      return parameter && splits_[*parameter].split ? parameter : std::nullopt;
    });
  }

  std::optional<std::size_t> weight_at(ValueId id) const {
    const auto found = parameter_of_.find(id.index);
    if (found == parameter_of_.end() || old_.parameters[found->second].weight != id) return std::nullopt;
    return found->second;
  }

  // ---- roots

  void add_roots() {
    for (std::uint32_t index = 0; index < old_.values.size(); ++index) {
      Value value = old_.values[ValueId{index}];
      if (value.role == graph::Role::computed) continue;
      const auto found = parameter_of_.find(index);
      if (found != parameter_of_.end()) {
        const Split& split = splits_[found->second];
        if (value.part == ops::Part{}) value.part = {.whole = value.type.shape, .slice = value.type.shape};
        if (split.split && value.state.goes_in_shards() && (gathers_weights() || value.role != graph::Role::parameter)) {
          value.part.shard = split.padded / members_;
          value.type.shape = {value.part.shard};
        }
      }
      rewrite_.declare(ValueId{index}, std::move(value));
    }
  }

  // ---- nodes

  std::vector<ValueId> add(const ops::Op& op, std::vector<ValueId> inputs, BlockId block, Phase phase, Turn turn, std::string_view name) {
    return rewrite_.make(op, std::move(inputs), {block, phase, turn}, name);
  }

  void add_stretch(std::size_t index) {
    const Stretch& stretch = stretches_[index];
    if (runs_per_micro_batch(stretch.phase)) gather_ahead(index);
    if (stretch.phase == Phase::verdict) add_norm(old_.nodes[NodeId{stretch.begin}].inputs[0]);
    updated_.clear();
    for (std::uint32_t node = stretch.begin; node < stretch.end; ++node) {
      copy_node(index, old_.nodes[NodeId{node}]);
      if (bucket_is_full()) reduce_ready(stretch);
    }
    if (stretch.phase == Phase::update) gather_updated(stretch);
    if (!runs_per_micro_batch(stretch.phase) || (ready_.empty() && under_way_.empty())) return;
    // A bucket ends where others may run in between.
    const bool last = index + 1 == stretches_.size() || !runs_per_micro_batch(stretches_[index + 1].phase) || !follows(index, index + 1);
    if (!last) return;
    if (!ready_.empty()) reduce_ready(stretch);
    while (!under_way_.empty()) add_arrived(stretch);
  }

  // Then it leaves while the rest of the block goes on.
  bool bucket_is_full() const {
    return !ready_.empty() && ready_bytes_ >= (first_bucket_ ? std::min(kFirstBucket, strategy_.bucket.count) : strategy_.bucket.count);
  }

  // In a pipeline only what one stage does in one phase runs in a row.
  bool follows(std::size_t before, std::size_t after) const {
    if (strategy_.pipe == 1) return true;
    const auto stage = [&](std::size_t stretch) { return old_.blocks[stretches_[stretch].block].stage; };
    return stage(before) == stage(after) && stretches_[before].phase == stretches_[after].phase;
  }

  void copy_node(std::size_t stretch, const Node& node) {
    if (node.phase == Phase::norm) return norm_.push_back(node);
    if (node.phase == Phase::join) return join_gradient(node);
    // Data ranks add up theirs before places of a pipeline do.
    if (node.phase == Phase::finish && !merged_ && ops::is_collective(node.op))
      rewrite_.replace(node.inputs[0], merged(rewrite_.now(node.inputs[0]), false, Phase::finish));
    preludes_.settle_for(node);
    Node copy = node;
    if (const auto* prelude = ops::prelude_in(node.op); prelude != nullptr && in_shards(node)) return add_prelude(stretch, node, *prelude);
    if (reduces_each()) copy.turn = Turn::each;  // nothing of a gradient waits for the last micro-batch
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) inputs.push_back(input_of(stretch, node, id));
    rewrite_.keep(std::move(copy), std::move(inputs));
    for (ValueId output : node.outputs) note_gradient(output);
    if (node.phase == Phase::update) note_update(node);
  }

  ValueId input_of(std::size_t stretch, const Node& node, ValueId id) {
    if (runs_per_micro_batch(node.phase)) {
      const std::optional<std::size_t> parameter = weight_at(id);
      if (parameter && gathers_weights() && splits_[*parameter].split) return gathered_.at(gather_key(stretch, *parameter));
      return rewrite_.now(id);
    }
    if (node.phase != Phase::update) return rewrite_.now(id);
    if (is_step_of_shards(node, id)) return own_shard(rewrite_.now(id), updated_parameter(node), node, old_.values[id].name);
    if (const auto gradient = gradient_of_.find(id.index); gradient != gradient_of_.end()) return splits_[gradient->second].gradient;
    const std::optional<std::size_t> parameter = weight_at(id);
    if (!parameter || !splits_[*parameter].split || gathers_weights()) return rewrite_.now(id);
    return own_weight(*parameter, node);
  }

  // ---- gradients

  void note_gradient(ValueId output) {
    const auto found = gradient_of_.find(output.index);
    if (found == gradient_of_.end()) return;
    ready_.push_back(found->second);
    ready_bytes_ += old_.values[output].type.bytes();
  }

  void reduce_ready(const Stretch& stretch) {
    std::vector<std::size_t> whole;
    std::vector<std::size_t> split;
    std::vector<std::size_t> own;
    for (std::size_t parameter : ready_) {
      const bool alone = !axes_.several() || axes_.own(old_.parameters[parameter]);
      (splits_[parameter].split ? split : alone ? own : whole).push_back(parameter);
    }
    if (!own.empty()) sum_whole(own, false, stretch);
    if (!whole.empty()) sum_whole(whole, true, stretch);
    if (!split.empty()) sum_to_shards(split, stretch);
    ready_.clear();
    ready_bytes_ = 0;
    first_bucket_ = false;
  }

  // Adds up what the two places of a pipeline that share a weight have of its gradient: of a split one, of each rank's shard.
  void join_gradient(const Node& node) {
    ValueId& gradient = splits_[gradient_of_.at(node.inputs[0].index)].gradient;
    gradient = add(node.op, {gradient}, node.block, node.phase, Turn::each, old_.values[node.outputs[0]].name)[0];
    rewrite_.replace(node.outputs[0], gradient);
  }

  ValueId new_gradient(std::size_t parameter) const { return rewrite_.now(old_.parameters[parameter].gradient); }

  void sum_whole(const std::vector<std::size_t>& parameters, bool over_data, const Stretch& stretch) {
    std::vector<ValueId> values;
    for (std::size_t parameter : parameters) values.push_back(new_gradient(parameter));
    const Turn turn = reduces_each() ? Turn::each : Turn::last;
    if (over_data && strategy_.reduce == strategy::Reduce::main) {
      values = add(axes_.over_all(CollectiveKind::reduce, values.size()), values, stretch.block, stretch.phase, turn, "grad.main");
      values = add(axes_.over_all(CollectiveKind::broadcast, values.size()), values, stretch.block, stretch.phase, turn, "grad.all");
    } else if (over_data) {
      values = add(axes_.over_all(CollectiveKind::all_reduce, values.size()), values, stretch.block, stretch.phase, turn, "grad.sum");
    }
    keep_gradients(parameters, summed(parameters, values, stretch));
  }

  void sum_to_shards(const std::vector<std::size_t>& parameters, const Stretch& stretch) {
    const bool in_place = !reduces_each();
    const Turn turn = reduces_each() ? Turn::each : Turn::last;
    std::vector<ValueId> flat;
    for (std::size_t parameter : parameters) {
      const Split& split = splits_[parameter];
      const std::string name = "grad." + old_.parameters[parameter].name + ".flat";
      ValueId value = add(ops::View{.shape = {split.padded}}, {new_gradient(parameter)}, stretch.block, stretch.phase, turn, name)[0];
      if (split.padded != split.elements)
        value = add(ops::Pad{.valid = split.elements}, {value}, stretch.block, stretch.phase, turn, name)[0];
      flat.push_back(value);
    }
    const std::vector<ValueId> shards = add(axes_.over_shards(CollectiveKind::reduce_scatter, flat.size(), in_place), flat, stretch.block,
                                            stretch.phase, turn, "grad.shard");
    for (std::size_t index = 0; index < shards.size(); ++index)
      new_.values[shards[index]].name = "grad." + old_.parameters[parameters[index]].name + ".shard";
    under_way_.push_back({parameters, shards});
    while (under_way_.size() > (accumulates_shards() ? kUnderWay : 0)) add_arrived(stretch);
  }

  // What came of the oldest bucket under way.
  void add_arrived(const Stretch& stretch) {
    const auto [parameters, shards] = std::move(under_way_.front());
    under_way_.pop_front();
    std::vector<ValueId> values = summed(parameters, shards, stretch);
    if (axes_.hybrid()) {
      values = add(axes_.over_groups(CollectiveKind::all_reduce, values.size()), values, stretch.block, stretch.phase, Turn::last,
                   "grad.groups");
      for (std::size_t index = 0; index < values.size(); ++index)
        new_.values[values[index]].name = "grad." + old_.parameters[parameters[index]].name + ".all";
    }
    keep_gradients(parameters, values);
  }

  // Where every micro-batch reduces, sums over micro-batches are made of what was reduced; else whole gradients add up in
  // place before they are.
  std::vector<ValueId> summed(const std::vector<std::size_t>& parameters, std::vector<ValueId> reduced, const Stretch& stretch) {
    for (std::size_t index = 0; index < parameters.size() && accumulates_shards(); ++index) {
      const std::string name = "grad." + old_.parameters[parameters[index]].name + ".sum";
      reduced[index] = add(ops::Accumulate{}, {reduced[index]}, stretch.block, stretch.phase, Turn::each, name)[0];
    }
    axes_.sum_over_further(rewrite_, parameters, reduced, {stretch.block, stretch.phase, Turn::last});
    return reduced;
  }

  void keep_gradients(const std::vector<std::size_t>& parameters, const std::vector<ValueId>& values) {
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      splits_[parameters[index]].gradient = values[index];
      kept_gradient_[parameters[index]] = reduces_each() ? values[index] : new_gradient(parameters[index]);
    }
  }

  // ---- norm and update

  // Shards, and what each rank has its own of, are squared by their owners and the sums exchanged; what is whole everywhere is squared by
  // everybody after that, so that nothing counts twice. There may be a second block of sums, for what tensor ranks share out; what is done
  // with it after the squares follows here.
  void add_norm(ValueId verdict_reads) {
    ValueId main = newest_scalars();
    ValueId side;
    const auto square = [&](bool apart) {
      bool any = false;
      for (const Node& node : norm_) {
        if (!ops::sums_squares(node.op)) continue;
        const std::size_t parameter = gradient_of_.at(node.inputs[1].index);
        const bool split = splits_[parameter].split;
        if ((split || axes_.own(old_.parameters[parameter])) != apart) continue;
        ValueId& scalars = on_side(node.inputs[0]) ? side : main;
        auto op = std::get<ops::SquaredNorm>(node.op);
        if (split && op.counted >= 0) op.shard = splits_[parameter].padded / members_;
        scalars = add(op, {scalars, splits_[parameter].gradient}, node.block, Phase::norm, Turn::each, "scalars.norm")[0];
        any = true;
      }
      return any;
    };
    for (const Node& node : norm_) {
      if (ops::definition_of(node.op).begins_scalars) side = add(node.op, {}, node.block, Phase::norm, Turn::each, "scalars.split")[0];
    }
    const bool any = square(true);
    main = merged(main, any);
    if (side.valid() && any)
      side = DataAxes::merge(rewrite_, side, axes_.over_shards(CollectiveKind::all_gather, 1, false), true, Phase::norm);
    square(false);
    for (const Node& node : norm_) {
      // The first of them reads what came before, whatever it does: it may be that nothing is squared but what tensor ranks share.
      if (!node.inputs.empty() && !on_side(node.inputs[0])) rewrite_.replace(node.inputs[0], main);
      for (ValueId id : node.outputs) rewrite_.replace(id, on_side(id) ? side : main);
    }
    for (const Node& node : norm_) {
      if (ops::sums_squares(node.op) || ops::definition_of(node.op).begins_scalars) continue;
      std::vector<ValueId> inputs;
      for (ValueId id : node.inputs) inputs.push_back(rewrite_.now(id));
      const std::vector<ValueId> made = add(node.op, inputs, node.block, Phase::norm, Turn::each, "scalars.tensor");
      for (std::size_t output = 0; output < made.size(); ++output) rewrite_.replace(node.outputs[output], made[output]);
      if (chains_.of(node.outputs[0]) == old_.scalars) main = made[0];
    }
    rewrite_.replace(verdict_reads, main);
  }

  // On the chain of scalars that holds the squares of what tensor ranks share out.
  bool on_side(ValueId old) const { return chains_.has(old) && chains_.of(old) != old_.scalars; }

  // Of the step, as it is so far.
  ValueId newest_scalars() {
    new_.scalars = rewrite_.now(old_.scalars);
    return graph::ScalarChains(new_).newest(new_.scalars);
  }

  ValueId merged(ValueId scalars, bool norm, Phase phase = Phase::norm) {
    merged_ = true;
    return axes_.merged(rewrite_, scalars, norm, phase);
  }

  // This rank's shard of a weight that is whole on every rank: what its update writes.
  ValueId own_weight(std::size_t parameter, const Node& node) {
    return own_shard(rewrite_.now(old_.parameters[parameter].weight), parameter, node, old_.parameters[parameter].name);
  }

  ValueId own_shard(ValueId whole, std::size_t parameter, const Node& node, const std::string& name) {
    const ValueId flat =
        add(ops::View{.shape = {splits_[parameter].padded}}, {whole}, node.block, node.phase, Turn::each, name + ".flat")[0];
    return add(ops::OwnShard{.members = members_}, {flat}, node.block, node.phase, Turn::each, name + ".own")[0];
  }

  // Of an update, or its prelude.
  std::size_t updated_parameter(const Node& node) const {
    const auto found = parameter_of_.find(node.inputs[ops::Update::kFirstKept].index);
    PLIMSOLL_CHECK(found != parameter_of_.end(), "an update of no parameter");
    return found->second;
  }
  bool in_shards(const Node& node) const { return splits_[updated_parameter(node)].split; }

  void note_update(const Node& node) {
    if (!is_update(node.op) || !in_shards(node) || gathers_weights()) return;
    // The weight is the first result, or the copy in the compute type, which is the last.
    const graph::Parameter& parameter = old_.parameters[updated_parameter(node)];
    updated_.push_back(rewrite_.now(parameter.master == parameter.weight ? node.outputs.front() : node.outputs.back()));
  }

  void gather_updated(const Stretch& stretch) {
    if (updated_.empty()) return;
    add(axes_.over_shards(CollectiveKind::all_gather, updated_.size(), true), updated_, stretch.block, stretch.phase, Turn::each,
        "weights");
  }

  // ---- preludes of updates, of shards

  void add_prelude(std::size_t stretch, const Node& node, ops::UpdatePrelude prelude) {
    const Split& split = splits_[updated_parameter(node)];
    // Padding counts nothing.
    if (prelude.counted < 0) prelude.counted = split.elements;
    prelude.shard = split.padded / members_;
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) inputs.push_back(input_of(stretch, node, id));
    const std::string& name = old_.values[node.outputs[0]].name;
    const ValueId made = add(prelude, inputs, node.block, node.phase, Turn::each, name + ".shard")[0];
    preludes_.wait({.old = node.outputs[0], .made = made}, prelude.is_sum());
  }

  // Whether the update of a parameter in shards reads the step that was made of the whole of it.
  bool is_step_of_shards(const Node& node, ValueId id) const {
    const std::optional<std::size_t> step = ops::step_operand(node.op);
    return step && node.inputs[*step] == id && in_shards(node);
  }

  // ---- weights in shards

  // A weight is gathered once for each stretch that reads it; kept, once for the step.
  std::pair<std::size_t, std::size_t> gather_key(std::size_t stretch, std::size_t parameter) const {
    return {strategy_.keep_params ? 0 : stretches_[stretch].gathers, parameter};
  }

  // Before a stretch starts, gathers what stretches up to `prefetch` ahead need.
  void gather_ahead(std::size_t index) {
    if (!gathers_weights()) return;
    next_gather_ = std::max(next_gather_, index);
    for (; next_gather_ < stretches_.size() && next_gather_ <= index + static_cast<std::size_t>(strategy_.prefetch); ++next_gather_) {
      if (!follows(index, next_gather_)) return;
      if (runs_per_micro_batch(stretches_[next_gather_].phase)) gather_for(next_gather_, stretches_[index]);
    }
  }

  void gather_for(std::size_t wanted, const Stretch& issued_in) {
    const Stretch& stretch = stretches_[wanted];
    std::vector<std::size_t> parameters;
    std::vector<ValueId> shards;
    for (std::size_t parameter : stretch.needs) {
      if (gathered_.contains(gather_key(wanted, parameter))) continue;
      parameters.push_back(parameter);
      shards.push_back(rewrite_.now(old_.parameters[parameter].weight));
    }
    if (parameters.empty()) return;
    const Turn turn = strategy_.keep_params ? Turn::first : Turn::each;
    const std::vector<ValueId> flat =
        add(axes_.over_shards(CollectiveKind::all_gather, shards.size(), false), shards, stretch.block, issued_in.phase, turn, "gathered");
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      const std::string& name = old_.parameters[parameters[index]].name;
      Value& whole = new_.values[flat[index]];
      whole.name = fmt::format("{}.whole.{}", name, graph::name_of(stretch.phase));
      whole.all_micro_batches = strategy_.keep_params;
      const base::Shape shape = old_.values[old_.parameters[parameters[index]].weight].type.shape;
      const std::string view_name = whole.name + ".view";
      const ValueId view = add(ops::View{.shape = shape}, {flat[index]}, stretch.block, issued_in.phase, turn, view_name)[0];
      gathered_[gather_key(wanted, parameters[index])] = view;
    }
  }

  const Graph& old_;
  const strategy::Strategy& strategy_;
  DataAxes axes_;
  std::int64_t members_;
  std::int32_t micro_batches_;
  graph::ScalarChains chains_;  // of the old graph
  graph::Rewrite rewrite_;
  Graph& new_;
  PreludeExchange preludes_;
  std::map<std::uint32_t, std::size_t> parameter_of_;
  std::map<std::uint32_t, std::size_t> gradient_of_;
  std::vector<Split> splits_;
  std::vector<Stretch> stretches_;
  std::vector<std::size_t> ready_;
  std::int64_t ready_bytes_ = 0;
  bool first_bucket_ = true;
  std::deque<Bucket> under_way_;
  bool merged_ = false;
  std::vector<Node> norm_;  // old nodes of the norm phase
  std::map<std::size_t, ValueId> kept_gradient_;
  std::vector<ValueId> updated_;
  std::size_t next_gather_ = 0;
  std::map<std::pair<std::size_t, std::size_t>, ValueId> gathered_;
};

}  // namespace

bool sums_over_ranks(const Graph& graph, const strategy::Strategy& strategy) { return DataAxes(graph, strategy).any(); }

Graph split_over_data(const Graph& graph, const strategy::Strategy& strategy, std::int32_t micro_batches) {
  return DataSplit(graph, strategy, micro_batches).run();
}

}  // namespace plimsoll::lowering

#include "lowering/passes/split_data.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "graph/rewrite.h"
#include "graph/scalar_chains.h"
#include "lowering/passes/data_axes.h"
#include "lowering/passes/gradient_sums.h"
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

class DataSplit {
  using Stretch = WeightStretch;
  using Split = ParameterSplit;

 public:
  DataSplit(const Graph& old, const strategy::Strategy& strategy, const StepFacts& step)
      : old_(old),
        strategy_(strategy),
        axes_(old, strategy),
        members_(axes_.members()),
        chains_(old),
        rewrite_(old, graph::Values::fresh),
        new_(rewrite_.to()),
        preludes_(
            rewrite_, [this](std::size_t tensors) { return axes_.over_shards(CollectiveKind::all_gather, tensors, false); },
            [this](const graph::Site& site, const std::vector<PreludeExchange::Piece>& pieces) {
              return gather_shards(rewrite_, axes_.over_shards(CollectiveKind::all_gather, pieces.size(), false), site, pieces);
            }),
        sums_(rewrite_,
              {.strategy = strategy_, .axes = axes_, .zero = zero(), .micro_batches = step.micro_batches, .may_skip = step.may_skip},
              splits_),
        build_(rewrite_) {
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
    for (const auto& [parameter, gradient] : sums_.kept()) graph.parameters[parameter].gradient = gradient;
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
    const graph::Site site{.block = stretch.block, .phase = stretch.phase};
    if (runs_per_micro_batch(stretch.phase)) gather_ahead(index);
    read_coded(index);
    if (stretch.phase == Phase::verdict) add_norm(old_.nodes[NodeId{stretch.begin}].inputs[0]);
    updated_.clear();
    for (std::uint32_t node = stretch.begin; node < stretch.end; ++node) {
      copy_node(index, old_.nodes[NodeId{node}]);
      if (sums_.bucket_is_full()) sums_.reduce_ready(site);
    }
    if (stretch.phase == Phase::verdict) sums_.undo_where_skipped(newest_scalars());
    if (stretch.phase == Phase::update) gather_updated(stretch);
    if (!runs_per_micro_batch(stretch.phase) || sums_.idle()) return;
    // A bucket ends where others may run in between.
    const bool last = index + 1 == stretches_.size() || !runs_per_micro_batch(stretches_[index + 1].phase) || !follows(index, index + 1);
    if (last) sums_.finish(site);
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
    if (sums_.reduces_each()) copy.turn = Turn::each;  // nothing of a gradient waits for the last micro-batch
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
    sums_.note(found->second, old_.values[output].type.bytes());
  }

  // Adds up what the two places of a pipeline that share a weight have of its gradient: of a split one, of each rank's shard.
  void join_gradient(const Node& node) {
    ValueId& gradient = splits_[gradient_of_.at(node.inputs[0].index)].gradient;
    gradient = add(node.op, {gradient}, node.block, node.phase, Turn::each, old_.values[node.outputs[0]].name)[0];
    rewrite_.replace(node.outputs[0], gradient);
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
      if (!asked_.insert(gather_key(wanted, parameter)).second) continue;
      parameters.push_back(parameter);
      shards.push_back(rewrite_.now(old_.parameters[parameter].weight));
    }
    if (parameters.empty()) return;
    const Turn turn = gather_turn();
    send_coded(wanted, parameters, shards, issued_in);
    if (parameters.empty()) return;
    const std::vector<ValueId> flat =
        add(axes_.over_shards(CollectiveKind::all_gather, shards.size(), false), shards, stretch.block, issued_in.phase, turn, "gathered");
    for (std::size_t index = 0; index < parameters.size(); ++index) note_gathered(wanted, parameters[index], flat[index], issued_in.phase);
  }

  void note_gathered(std::size_t wanted, std::size_t parameter, ValueId flat, Phase phase) {
    const Stretch& stretch = stretches_[wanted];
    Value& whole = new_.values[flat];
    whole.name = fmt::format("{}.whole.{}", old_.parameters[parameter].name, graph::name_of(stretch.phase));
    whole.all_micro_batches = strategy_.keep_params;
    const base::Shape shape = old_.values[old_.parameters[parameter].weight].type.shape;
    const std::string view_name = whole.name + ".view";
    gathered_[gather_key(wanted, parameter)] = add(ops::View{.shape = shape}, {flat}, stretch.block, phase, gather_turn(), view_name)[0];
  }

  Turn gather_turn() const { return strategy_.keep_params ? Turn::first : Turn::each; }

  // ---- weights that a codec sends

  struct Gathering {
    std::vector<std::size_t> parameters;
    codecs::Task task;
    codecs::Flight flight;
  };

  // Those that the codec takes, out of the lists.
  void send_coded(std::size_t wanted, std::vector<std::size_t>& parameters, std::vector<ValueId>& shards, const Stretch& issued_in) {
    const codecs::Choice& choice = strategy_.communication.weights;
    if (!choice.any()) return;
    Gathering gathering{
        .parameters = {},
        .task = {.wanted = codecs::Wanted::gather, .site = {stretches_[wanted].block, issued_in.phase, gather_turn()}, .choice = choice},
        .flight = {}};
    std::vector<std::size_t> left;
    std::vector<ValueId> left_shards;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      const std::size_t parameter = parameters[index];
      const base::TensorType type{new_.values[shards[index]].type.dtype, base::Shape{splits_[parameter].padded}};
      const bool takes = codecs::why_exact({.choice = choice, .wanted = codecs::Wanted::gather, .type = type, .members = members_}).empty();
      if (!takes) {
        left.push_back(parameter);
        left_shards.push_back(shards[index]);
        continue;
      }
      gathering.parameters.push_back(parameter);
      gathering.task.operands.push_back({.value = shards[index],
                                         .name = old_.parameters[parameter].name + ".gathered",
                                         .type = type,
                                         .whole = old_.values[old_.parameters[parameter].weight].type.shape,
                                         .shard = splits_[parameter].padded / members_});
    }
    parameters = std::move(left);
    shards = std::move(left_shards);
    if (gathering.parameters.empty()) return;
    gathering.task.plain = axes_.over_shards(CollectiveKind::all_gather, gathering.parameters.size(), false);
    gathering.flight = choice.codec->emit(build_, gathering.task);
    coming_.emplace(wanted, std::move(gathering));
  }

  // What was gathered ahead for the stretch, in the form that it computes with.
  void read_coded(std::size_t index) {
    const auto found = coming_.find(index);
    if (found == coming_.end()) return;
    auto& [parameters, task, flight] = found->second;
    task.site.phase = stretches_[index].phase;
    while (flight.next != nullptr) flight = flight.next(build_, task, flight.values);
    for (std::size_t place = 0; place < parameters.size(); ++place)
      note_gathered(index, parameters[place], flight.values[place], task.site.phase);
    coming_.erase(found);
  }

  const Graph& old_;
  const strategy::Strategy& strategy_;
  DataAxes axes_;
  std::int64_t members_;
  graph::ScalarChains chains_;  // of the old graph
  graph::Rewrite rewrite_;
  Graph& new_;
  PreludeExchange preludes_;
  std::map<std::uint32_t, std::size_t> parameter_of_;
  std::map<std::uint32_t, std::size_t> gradient_of_;
  std::vector<Split> splits_;
  GradientSums sums_;
  codecs::Builder build_;
  std::vector<Stretch> stretches_;
  bool merged_ = false;
  std::vector<Node> norm_;  // old nodes of the norm phase
  std::vector<ValueId> updated_;
  std::size_t next_gather_ = 0;
  std::set<std::pair<std::size_t, std::size_t>> asked_;
  std::map<std::pair<std::size_t, std::size_t>, ValueId> gathered_;
  std::map<std::size_t, Gathering> coming_;  // by the stretch that wants it
};

}  // namespace

bool sums_over_ranks(const Graph& graph, const strategy::Strategy& strategy) { return DataAxes(graph, strategy).any(); }

Graph split_over_data(const Graph& graph, const strategy::Strategy& strategy, const StepFacts& step) {
  return DataSplit(graph, strategy, step).run();
}

}  // namespace plimsoll::lowering

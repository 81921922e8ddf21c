#include "lowering/rank_graph.h"

#include <algorithm>

#include "base/error.h"
#include "lowering/layout/versions.h"
#include "lowering/passes/block_chain.h"
#include "lowering/passes/split_tensor.h"
#include "strategy/schedules/table.h"
#include "strategy/stages.h"

namespace plimsoll::lowering {

using strategy::schedules::Item;

namespace {

// A sent tensor's memory is free again when the item after the next begins: by then the message is on its way.
constexpr std::int32_t kItemsBeforeSettling = 2;

// A weight that is trained in both.
bool share_weights(const graph::Graph& graph, const Pipe& pipe, std::int32_t one, std::int32_t other) {
  return std::any_of(graph.parameters.begin(), graph.parameters.end(), [&](const graph::Parameter& parameter) {
    const auto reads_it_in = [&](std::int32_t stage) {
      return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const graph::Node& node) {
        return node.phase == graph::Phase::forward && pipe.stage_of_block[node.block.index] == stage &&
               std::find(node.inputs.begin(), node.inputs.end(), parameter.weight) != node.inputs.end();
      });
    };
    return !parameter.frozen && reads_it_in(one) && reads_it_in(other);
  });
}

// Where a head and an embedding with one table lie on one place, the embedding adds its part of the table's gradient to the head's.
// Tensor ranks make that with the gradients of weights, which a schedule may put off until the embedding's are made.
void require_head_first(const graph::Graph& graph, const Pipe& pipe, const strategy::schedules::Schedule& schedule) {
  using strategy::schedules::Work;
  const auto head = static_cast<std::int32_t>(schedule.shape.stages() - 1);
  const std::int32_t place = pipe.place_of_stage.front();
  if (pipe.place_of_stage.back() != place || !share_weights(graph, pipe, 0, head)) return;
  const std::vector<Item>& items = schedule.ranks[static_cast<std::size_t>(place)];
  std::vector<bool> begun(static_cast<std::size_t>(schedule.shape.batches), false);
  for (std::size_t index = 0; index < items.size(); ++index) {
    const Item& item = items[index];
    if (item.work != Work::backward && item.work != Work::backward_weight) continue;
    const auto batch = static_cast<std::size_t>(item.micro_batch / schedule.shape.micro_batches);
    if (item.stage == head) begun[batch] = true;
    if (item.stage != 0 || begun[batch]) continue;
    base::not_legal(
        "the schedule \"{}\" cannot be run: rank {}, item {} ({}): adds to the gradient of a table that the head shares, before any "
        "backward_weight of the head's stage {}; put one of those first, or use \"model.tied\": false",
        schedule.name, place, index, strategy::schedules::describe(item), head);
  }
}

}  // namespace

RankGraphs::RankGraphs(const LoweringInputs& inputs, const RecomputeOrder& again) : inputs_(inputs), again_(again) {
  update_ = host_update(inputs);
  lay_mesh();
  lay_pipe();
}

void RankGraphs::lay_mesh() {
  const strategy::Strategy& strategy = inputs_.strategy;
  const auto sharers = [&](const strategy::Strategy& at) {
    return static_cast<std::int32_t>(head_sharers(inputs_.programs.front().graph, at.tensor));
  };
  const bool own = strategy.own_degrees();
  std::vector<plan::MeshAxis> axes;
  for (const auto& [row, degree] : strategy.degrees()) {
    const bool alike = !own || row.shares == ops::Shares::blocks;
    axes.push_back({.row = row, .extent = alike ? static_cast<std::int32_t>(degree) : 1});
  }
  mesh_ = plan::Mesh(std::move(axes));
  if (!own) {
    mesh_.add_inner(strategy.shards() < strategy.data ? static_cast<std::int32_t>(strategy.zero_group) : 0, sharers(strategy));
    return;
  }
  mesh_.add_part(ops::Axis::tensor_inner, 1, 1);
  std::vector<std::vector<std::int32_t>> extents;
  for (std::int64_t place = 0; place < strategy.pipe; ++place) {
    const strategy::Strategy at = strategy.at(place);
    std::vector<std::int32_t>& here = extents.emplace_back(mesh_.table().size(), 1);
    here[mesh_.index(ops::Axis::data)] = static_cast<std::int32_t>(at.data);
    here[mesh_.index(ops::Axis::tensor)] = static_cast<std::int32_t>(at.tensor);
    here[mesh_.index(ops::Axis::tensor_inner)] = sharers(at);
  }
  mesh_.set_own(std::move(extents));
}

// Data ranks of a stage take micro-batches in turn, and all of them as many.
void RankGraphs::require_turns() const {
  const std::int64_t turn = inputs_.strategy.turn();
  const std::int64_t given = inputs_.programs.front().micro_batches;
  if (given % turn != 0) {
    base::not_legal(
        "this strategy cannot be run: the data ranks of each stage take micro-batches in turn, so their number must be a multiple of {}, "
        "but there are {}; use {} or {}",
        turn, given, std::max(turn, given / turn * turn), (given / turn + 1) * turn);
  }
}

void RankGraphs::require_same_ends() const {
  const std::int32_t tied = mesh_.tied_place();
  if (mesh_.own()[0] == mesh_.own()[static_cast<std::size_t>(tied)]) return;
  const auto extent = [&](const ops::Axis& axis, std::int32_t place) { return mesh_.extent_at(axis, place); };
  base::not_legal(
      "this strategy cannot be run: the token table is on the first and the last stage, which have data {} x tensor {} and data {} x "
      "tensor "
      "{}; give both the same degrees, or use \"model.tied\": false",
      extent(ops::Axis::data, 0), extent(ops::Axis::tensor, 0), extent(ops::Axis::data, tied), extent(ops::Axis::tensor, tied));
}

// Which place has which blocks, and in which order the places run the train program. All programs have the same blocks.
void RankGraphs::lay_pipe() {
  const ProgramSource& first = inputs_.programs.front();
  const strategy::Strategy& strategy = inputs_.strategy;
  pipe_.places = mesh_.extent(ops::Axis::pipe);
  pipe_.stage_of_block = strategy::stages_of(first.graph, strategy);
  if (pipe_.places == 1) {
    pipe_.place_of_stage = {0};
    return;
  }
  if (!mesh_.even()) require_turns();
  // Data ranks that meet in every micro-batch keep in step: a round of micro-batches then moves as one. Else ranks of one stage wait
  // for each other while those of the next do, in rounds of another length, and neither comes.
  const bool meet_in_each = strategy.zero == 3 || (strategy.zero == 2 && !strategy.keep_grads);
  if (meet_in_each) together_ = static_cast<std::int32_t>(strategy.turn());
  if (together_ > 1 && inputs_.schedule) {
    base::not_legal(
        "this strategy cannot be run: with \"zero\" {} the data ranks of a stage keep in step, which '{}' does not know of; use \"zero\": "
        "1, "
        "or a schedule by name",
        strategy.zero, strategy.schedule);
  }
  schedule_ = inputs_.schedule ? *inputs_.schedule
                               : strategy::schedules::build(strategy.schedule, {.ranks = strategy.pipe,
                                                                                .micro_batches = first.micro_batches / together_,
                                                                                .chunks = strategy.chunks,
                                                                                .batches = strategy.flush_every});
  for (std::int32_t stage = 0; stage < static_cast<std::int32_t>(schedule_.shape.stages()); ++stage)
    pipe_.place_of_stage.push_back(schedule_.rank_of(stage, 0));
  const std::int32_t tied = tied_place(first.graph, pipe_);
  mesh_.tie(tied);
  if (!mesh_.even()) require_same_ends();
  require_versions(first.graph, schedule_, tied);
  if (inputs_.schedule && strategy.tensor > 1) require_head_first(first.graph, pipe_, schedule_);
  pipe_.apart = !schedule_.barrier && !needs_verdict(first.graph);
  for (const std::vector<Item>& items : schedule_.ranks) {
    for (const Item& item : items) splits_backward_ = splits_backward_ || item.work == strategy::schedules::Work::backward_weight;
  }
}

PassInputs RankGraphs::inputs_at(const ProgramSource& source, std::int32_t rank, const std::optional<ops::Seat>& given) const {
  const std::int32_t pipe_place = mesh_.place(ops::Axis::pipe, rank);
  const std::int32_t tensor = mesh_.extent(ops::Axis::tensor, rank);
  const ops::Seat seat = given.value_or(ops::Seat{.members = tensor, .place = mesh_.place(ops::Axis::tensor, rank)});
  const std::int32_t data = mesh_.extent(ops::Axis::data, rank);
  std::optional<Corner> corner;
  if (!mesh_.even()) corner = Corner{.data = data, .tensor = tensor, .first = rank == mesh_.first_rank(pipe_place)};
  // An update that waits is that of the step which left it: where its gradients are depends on that step's micro-batches.
  const std::int32_t micro_batches = source.waiting_update_only ? inputs_.programs.front().micro_batches : source.micro_batches;
  return {.strategy = inputs_.strategy.at(pipe_place),
          .mesh = mesh_,
          .pipe = pipe_,
          .again = again_,
          .rank = rank,
          .pipe_place = pipe_place,
          .seat = seat,
          .corner = corner,
          .micro_batches = mesh_.even() ? micro_batches : micro_batches / data,
          .backward = has_backward_pass(source.graph),
          .splits_backward = splits_backward_,
          .update = update_,
          .host_beside = inputs_.host_beside,
          .waiting_update_only = source.waiting_update_only};
}

graph::Graph RankGraphs::graph_at(const ProgramSource& source, std::int32_t rank, const std::optional<ops::Seat>& seat) const {
  const bool first = rank == 0 && &source == &inputs_.programs.front();
  const PassInputs inputs = inputs_at(source, rank, seat);
  const graph::PassDone& done = first ? inputs_.pass_done : graph::PassDone{};
  if (pipe_.places == 1 || !mesh_.even()) return run_passes(source.graph, inputs, PassRange::all, done);
  return run_passes(*graph_of_place(source, inputs, done), inputs, PassRange::after_place, done);
}

std::shared_ptr<const graph::Graph> RankGraphs::graph_of_place(const ProgramSource& source, const PassInputs& inputs,
                                                               const graph::PassDone& done) const {
  const std::pair<const graph::Graph*, std::int32_t> key{&source.graph, inputs.pipe_place};
  {
    const std::scoped_lock lock(places_mutex_);
    const auto found = places_.find(key);
    if (found != places_.end()) return found->second;
  }
  // Threads lower places of their own, so that none makes it a second time.
  auto made = std::make_shared<const graph::Graph>(run_passes(source.graph, inputs, PassRange::of_place, done));
  const std::scoped_lock lock(places_mutex_);
  return places_.try_emplace(key, std::move(made)).first->second;
}

std::vector<std::int32_t> RankGraphs::stages_at(std::int32_t pipe_place) const {
  std::vector<std::int32_t> stages;
  for (std::size_t stage = 0; stage < pipe_.place_of_stage.size(); ++stage) {
    if (pipe_.place_of_stage[stage] == pipe_place) stages.push_back(static_cast<std::int32_t>(stage));
  }
  return stages;
}

bool RankGraphs::follows_schedule(const ProgramSource& source) const {
  return pipe_.places > 1 && has_backward_pass(source.graph) && !source.waiting_update_only;
}

std::int32_t RankGraphs::batches(const ProgramSource& source) const {
  return follows_schedule(source) ? static_cast<std::int32_t>(schedule_.shape.batches) : 1;
}

std::vector<Item> RankGraphs::items_at(const ProgramSource& source, std::int32_t rank) const {
  const std::int32_t pipe_place = mesh_.place(ops::Axis::pipe, rank);
  if (!follows_schedule(source)) return own_items(plain_order(stages_at(pipe_place), source.micro_batches), rank, 1);
  return own_items(schedule_.ranks[static_cast<std::size_t>(pipe_place)], rank, together_);
}

// A data rank's own micro-batches, in the order of all: what cannot come to a standstill as a whole cannot in parts.
std::vector<Item> RankGraphs::own_items(const std::vector<Item>& all, std::int32_t rank, std::int32_t together) const {
  if (mesh_.even()) return all;
  const std::int32_t turn = mesh_.extent(ops::Axis::data, rank);
  const std::int32_t data_place = mesh_.place(ops::Axis::data, rank);
  std::vector<Item> own;
  for (const Item& item : all) {
    if (item.work == strategy::schedules::Work::update) {
      own.push_back(item);
      continue;
    }
    for (std::int32_t number = item.micro_batch * together; number < (item.micro_batch + 1) * together; ++number) {
      if (number % turn != data_place) continue;
      own.push_back(item);
      own.back().micro_batch = number;
    }
  }
  return own;
}

void Settling::before(const Piece& piece, const Issue& issue) {
  if (piece.stream == plan::StreamKind::send) sent_[issue.item] = streams_.moments();
  if (piece.stream == plan::StreamKind::compute && issue.item > item_) {
    item_ = issue.item;
    const auto settled = sent_.upper_bound(item_ - kItemsBeforeSettling);
    if (settled != sent_.begin()) streams_.settle(plan::StreamKind::send, std::prev(settled)->second);
  }
  leaving_.before(piece);
}

bool Settling::pauses(const Piece& piece) {
  if (!leaving_.must_pause(piece)) return false;
  leaving_.pause();
  return true;
}

bool is_persistent(plan::BufferKind kind) {
  switch (kind) {
    case plan::BufferKind::parameter:
    case plan::BufferKind::master:
    case plan::BufferKind::state:
    case plan::BufferKind::constant:
    case plan::BufferKind::scalars: return true;
    default: return false;
  }
}

}  // namespace plimsoll::lowering

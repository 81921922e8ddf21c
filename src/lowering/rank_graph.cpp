#include "lowering/rank_graph.h"

#include "lowering/block_chain.h"
#include "lowering/split_data.h"
#include "lowering/split_tensor.h"
#include "lowering/versions.h"
#include "strategy/schedules/table.h"
#include "strategy/stages.h"

namespace plimsoll::lowering {

using strategy::schedules::Item;

namespace {

// A sent tensor's memory is free again when the item after the next begins: by then the message is on its way.
constexpr std::int32_t kItemsBeforeSettling = 2;

}  // namespace

RankGraphs::RankGraphs(const LoweringInputs& inputs, const RecomputeOrder& again) : inputs_(inputs), again_(again) {
  const strategy::Strategy& strategy = inputs.strategy;
  mesh_ = {.pipe = static_cast<std::int32_t>(strategy.pipe),
           .data = static_cast<std::int32_t>(strategy.data),
           .tensor = static_cast<std::int32_t>(strategy.tensor)};
  if (strategy.shards() < strategy.data) mesh_.data_inner = static_cast<std::int32_t>(strategy.zero_group);
  mesh_.tensor_inner = static_cast<std::int32_t>(head_sharers(inputs.programs.front().graph, mesh_.tensor));
  lay_pipe();
}

// Which place has which blocks, and in which order the places run the train program. All programs have the same blocks.
void RankGraphs::lay_pipe() {
  const ProgramSource& first = inputs_.programs.front();
  const strategy::Strategy& strategy = inputs_.strategy;
  pipe_.places = mesh_.pipe;
  pipe_.stage_of_block = strategy::stages_of(first.graph, strategy);
  if (pipe_.places == 1) {
    pipe_.place_of_stage = {0};
    return;
  }
  schedule_ =
      inputs_.schedule
          ? *inputs_.schedule
          : strategy::schedules::build(
                strategy.schedule,
                {.ranks = strategy.pipe, .micro_batches = first.micro_batches, .chunks = strategy.chunks, .batches = strategy.flush_every});
  for (std::int32_t stage = 0; stage < static_cast<std::int32_t>(schedule_.shape.stages()); ++stage)
    pipe_.place_of_stage.push_back(schedule_.rank_of(stage, 0));
  mesh_.tied = tied_place(first.graph, pipe_);
  require_versions(first.graph, schedule_, mesh_.tied);
  pipe_.apart = !schedule_.barrier && !needs_verdict(first.graph);
  for (const std::vector<Item>& items : schedule_.ranks) {
    for (const Item& item : items) splits_backward_ = splits_backward_ || item.work == strategy::schedules::Work::backward_weight;
  }
}

graph::Graph RankGraphs::graph_at(const ProgramSource& source, std::int32_t pipe_place, const ops::Seat& seat) const {
  graph::Graph graph = split_over_pipe(source.graph, pipe_, pipe_place);
  graph::verify(graph, "splitting over the pipe axis");
  graph = split_over_tensor(graph, seat, inputs_.strategy);
  graph::verify(graph, "splitting over the tensor axis");
  if (has_backward_pass(source.graph)) graph = recompute(graph, again_);
  graph::verify(graph, "recompute");
  if (splits_backward_) graph = split_backward(graph);
  graph = split_over_data(graph, inputs_.strategy, source.micro_batches);
  graph::verify(graph, "splitting over the data axis");
  return to_slower_tiers(std::move(graph), inputs_.strategy, source.micro_batches, again_, inputs_.host_beside);
}

std::vector<std::int32_t> RankGraphs::stages_at(std::int32_t pipe_place) const {
  std::vector<std::int32_t> stages;
  for (std::size_t stage = 0; stage < pipe_.place_of_stage.size(); ++stage) {
    if (pipe_.place_of_stage[stage] == pipe_place) stages.push_back(static_cast<std::int32_t>(stage));
  }
  return stages;
}

bool RankGraphs::follows_schedule(const ProgramSource& source) const { return pipe_.places > 1 && has_backward_pass(source.graph); }

std::int32_t RankGraphs::batches(const ProgramSource& source) const {
  return follows_schedule(source) ? static_cast<std::int32_t>(schedule_.shape.batches) : 1;
}

std::vector<Item> RankGraphs::items_at(const ProgramSource& source, std::int32_t pipe_place) const {
  if (follows_schedule(source)) return schedule_.ranks[static_cast<std::size_t>(pipe_place)];
  return plain_order(stages_at(pipe_place), source.micro_batches);
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

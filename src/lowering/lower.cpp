// Passes over the graph for each class of ranks, then pieces in the order of the schedule: computation on one stream, collectives
// and messages on others.
#include "lowering/lower.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "lowering/block_chain.h"
#include "lowering/fit.h"
#include "lowering/issue_order.h"
#include "lowering/memory.h"
#include "lowering/offload.h"
#include "lowering/procedures.h"
#include "lowering/recompute.h"
#include "lowering/split_data.h"
#include "lowering/split_pipe.h"
#include "lowering/split_tensor.h"
#include "lowering/storage.h"
#include "lowering/streams.h"
#include "strategy/legality.h"
#include "strategy/schedules/table.h"
#include "strategy/stages.h"

namespace plimsoll::lowering {

namespace {

using base::Bytes;
using plan::BufferId;
using plan::BufferKind;
using strategy::schedules::Item;
using strategy::schedules::Schedule;

// A sent tensor's memory is free again when the item after the next begins: by then the message is on its way.
constexpr std::int32_t kItemsBeforeSettling = 2;

// Copies to the device that may be under way while updates go on.
constexpr std::size_t kCopiesInFlight = 1;

bool is_persistent(BufferKind kind) {
  switch (kind) {
    case BufferKind::parameter:
    case BufferKind::master:
    case BufferKind::state:
    case BufferKind::constant:
    case BufferKind::scalars: return true;
    default: return false;
  }
}

class Lowering {
 public:
  Lowering(const LoweringInputs& inputs, const RecomputeOrder& again) : inputs_(inputs), again_(again) {}

  plan::Plan run() {
    const strategy::Strategy& strategy = inputs_.strategy;
    plan_.model = inputs_.model;
    plan_.strategy = strategy::describe(strategy);
    plan_.notes = again_.notes;
    plan_.threads = inputs_.threads;
    plan_.mesh = {.pipe = static_cast<std::int32_t>(strategy.pipe),
                  .data = static_cast<std::int32_t>(strategy.data),
                  .tensor = static_cast<std::int32_t>(strategy.tensor)};
    if (strategy.shards() < strategy.data) plan_.mesh.data_inner = static_cast<std::int32_t>(strategy.zero_group);
    plan_.mesh.tensor_inner = static_cast<std::int32_t>(head_sharers(inputs_.programs.front().graph, plan_.mesh.tensor));
    lay_pipe();
    for (std::int32_t pipe_place = 0; pipe_place < plan_.mesh.pipe; ++pipe_place) {
      for (std::int32_t tensor_place = 0; tensor_place < plan_.mesh.tensor; ++tensor_place) add_class(pipe_place, tensor_place);
    }
    return std::move(plan_);
  }

 private:
  // Which place has which blocks, and in which order the places run the train program. All programs have the same blocks.
  void lay_pipe() {
    const ProgramSource& first = inputs_.programs.front();
    const strategy::Strategy& strategy = inputs_.strategy;
    pipe_.places = plan_.mesh.pipe;
    pipe_.stage_of_block = strategy::stages_of(first.graph, strategy);
    if (pipe_.places == 1) {
      pipe_.place_of_stage = {0};
      return;
    }
    schedule_ = inputs_.schedule
                    ? *inputs_.schedule
                    : strategy::schedules::build(strategy.schedule,
                                                 {.ranks = strategy.pipe, .micro_batches = first.micro_batches, .chunks = strategy.chunks});
    for (std::int32_t stage = 0; stage < static_cast<std::int32_t>(schedule_.shape.stages()); ++stage)
      pipe_.place_of_stage.push_back(schedule_.rank_of(stage, 0));
    plan_.mesh.tied = tied_place(first.graph, pipe_);
    for (const std::vector<Item>& items : schedule_.ranks) {
      for (const Item& item : items) splits_backward_ = splits_backward_ || item.work == strategy::schedules::Work::backward_weight;
    }
  }

  // Ranks at one place of the pipe axis and one of the tensor axis have the same parts of everything; their places on the data
  // axis differ only in which shard is their own.
  void add_class(std::int32_t pipe_place, std::int32_t tensor_place) {
    pipe_place_ = pipe_place;
    seat_ = {.members = plan_.mesh.tensor, .place = tensor_place};
    rank_class_ = {};
    persistent_.clear();
    rank_class_.name = class_name();
    for (std::int32_t rank = 0; rank < plan_.mesh.ranks(); ++rank) {
      if (plan_.mesh.place(ops::Axis::pipe, rank) == pipe_place && plan_.mesh.place(ops::Axis::tensor, rank) == tensor_place)
        rank_class_.ranks.push_back(rank);
    }
    for (const ProgramSource& source : inputs_.programs) add_program(source);
    place_buffers();
    plan_.classes.push_back(std::move(rank_class_));
  }

  std::string class_name() const {
    if (plan_.mesh.pipe == 1) return plan_.mesh.tensor == 1 ? "all" : fmt::format("tensor {}", seat_.place);
    return plan_.mesh.tensor == 1 ? fmt::format("pipe {}", pipe_place_) : fmt::format("pipe {}, tensor {}", pipe_place_, seat_.place);
  }

  // What a class runs of a program's graph.
  graph::Graph graph_here(const ProgramSource& source) const {
    graph::Graph graph = split_over_pipe(source.graph, pipe_, pipe_place_);
    graph::verify(graph, "splitting over the pipe axis");
    graph = split_over_tensor(graph, seat_, inputs_.strategy.sequence_parallel);
    graph::verify(graph, "splitting over the tensor axis");
    if (has_backward_pass(source.graph)) graph = recompute(graph, again_);
    graph::verify(graph, "recompute");
    if (splits_backward_) graph = split_backward(graph);
    graph = split_over_data(graph, inputs_.strategy, source.micro_batches);
    graph::verify(graph, "splitting over the data axis");
    if (inputs_.strategy.offload.optimizer.host > 0.0) graph = offload_optimizer(graph);
    graph::verify(graph, "offload");
    return graph;
  }

  std::vector<Item> items_here(const ProgramSource& source) const {
    if (pipe_.places > 1 && has_backward_pass(source.graph)) return schedule_.ranks[static_cast<std::size_t>(pipe_place_)];
    std::vector<std::int32_t> stages;
    for (std::size_t stage = 0; stage < pipe_.place_of_stage.size(); ++stage) {
      if (pipe_.place_of_stage[stage] == pipe_place_) stages.push_back(static_cast<std::int32_t>(stage));
    }
    return plain_order(stages, source.micro_batches);
  }

  plan::ProcedureId shared_procedure(plan::Procedure procedure) {
    std::vector<plan::ProcedureId>& alike = procedures_[{procedure.instructions.size(), procedure.slots.size()}];
    for (plan::ProcedureId id : alike) {
      if (same_work(plan_.procedures[id], procedure)) return id;
    }
    alike.push_back(plan_.procedures.add(std::move(procedure)));
    return alike.back();
  }

  // One buffer per storage: for the whole plan, for a step, or for a micro-batch.
  BufferId buffer_for(const graph::Graph& graph, const Storage& storage, StorageId id, std::int32_t program, const Issue& issue,
                      std::int32_t moment) {
    const graph::Value& value = graph.values[storage.value];
    const std::string& name = value.name;
    if (is_persistent(storage.kind)) {
      const auto [found, fresh] = persistent_.try_emplace(name);
      if (fresh)
        found->second = add_buffer({.name = name, .kind = storage.kind, .tier = storage.tier, .type = storage.type, .part = value.part});
      plan::Buffer& buffer = rank_class_.buffers[found->second];
      PLIMSOLL_CHECK(buffer.type == storage.type, "{} has two types", name);
      buffer.bytes = std::max(buffer.bytes, storage.bytes);
      return found->second;
    }
    const std::int32_t micro_batch = storage.all_micro_batches ? -1 : issue.micro_batch;
    std::vector<BufferId>& instances = instances_[id.index];
    const auto number = static_cast<std::size_t>(micro_batch + 1);
    if (number >= instances.size()) instances.resize(number + 1);
    if (!instances[number].valid()) {
      plan::Buffer buffer{.name = storage.all_micro_batches ? name : fmt::format("{}@{}", name, micro_batch),
                          .kind = storage.kind,
                          .tier = storage.tier,
                          .type = storage.type};
      buffer.bytes = storage.bytes;
      buffer.program = program;
      buffer.first = storage.kind == BufferKind::input ? 0 : moment;
      instances[number] = add_buffer(std::move(buffer));
    }
    rank_class_.buffers[instances[number]].last = moment;
    return instances[number];
  }

  BufferId add_buffer(plan::Buffer buffer) {
    buffer.bytes = std::max(buffer.bytes, Bytes{buffer.type.bytes()});
    return rank_class_.buffers.add(std::move(buffer));
  }

  // A procedure, and the storage behind each of its slots.
  struct Made {
    plan::ProcedureId procedure;
    std::vector<StorageId> slots;
  };

  void add_program(const ProgramSource& source) {
    const graph::Graph graph = graph_here(source);
    const Storages storages = share_storage(graph);
    const std::vector<Piece> pieces = pieces_of(graph);
    const ProcedureInputs procedure_inputs{graph, storages, inputs_.choose, inputs_.threads};
    std::map<std::pair<std::size_t, bool>, Made> made;
    instances_.assign(storages.all.size(), {});

    plan::Program program{.name = source.name, .micro_batches = source.micro_batches, .streams = {}};
    Streams streams(program);
    std::map<std::int32_t, std::int32_t> sent;  // item -> the moment of its last message
    std::vector<std::int32_t> copied;           // moments of copies to the device
    std::int32_t item = 0;
    for (const Issue& issue : issue_order(graph, pieces, items_here(source))) {
      const Piece& piece = pieces[issue.piece];
      const auto [found, fresh] = made.try_emplace({issue.piece, issue.accumulate});
      if (fresh) {
        BoundProcedure bound = make_procedure(procedure_inputs, piece, issue.accumulate);
        found->second = {shared_procedure(std::move(bound.procedure)), std::move(bound.slots)};
      }
      if (piece.stream == plan::StreamKind::send) sent[issue.item] = streams.moments();
      if (piece.stream == plan::StreamKind::compute && issue.item > item) {
        item = issue.item;
        const auto settled = sent.upper_bound(item - kItemsBeforeSettling);
        if (settled != sent.begin()) streams.settle(plan::StreamKind::send, std::prev(settled)->second);
      }
      // What was copied to the device two blocks ago is there by now: its memory in the other tier is free again.
      if (piece.stream == plan::StreamKind::compute && piece.phase == graph::Phase::update) {
        if (copied.size() > kCopiesInFlight) streams.settle(plan::StreamKind::host_in, copied[copied.size() - 1 - kCopiesInFlight]);
      }
      if (piece.stream == plan::StreamKind::host_in) copied.push_back(streams.moments());
      streams.add(call_of(graph, storages, piece, issue, found->second, streams.moments()), piece.stream);
    }
    end_lives(program, streams, storages);
    rank_class_.programs.push_back(std::move(program));
  }

  plan::Call call_of(const graph::Graph& graph, const Storages& storages, const Piece& piece, const Issue& issue, const Made& made,
                     std::int32_t moment) {
    const auto program = static_cast<std::int32_t>(rank_class_.programs.size());
    plan::Call call{.procedure = made.procedure,
                    .moment = moment,
                    .micro_batch = issue.micro_batch,
                    .label = piece.name,
                    .bindings = {},
                    .frame = {},
                    .waits = {},
                    .signals = {}};
    for (StorageId slot : made.slots) call.bindings.push_back(buffer_for(graph, storages.all[slot], slot, program, issue, moment));
    const Bytes frame = plan_.procedures[call.procedure].frame;
    if (frame.count > 0) {
      plan::Buffer buffer{.name = fmt::format("frame of {}@{}", piece.name, issue.micro_batch), .kind = BufferKind::frame};
      buffer.type = {base::DType::u8, base::Shape{frame.count}};
      buffer.program = program;
      buffer.first = buffer.last = moment;
      call.frame = add_buffer(std::move(buffer));
    }
    return call;
  }

  // What other streams use lives until they are known to be done with it, and results until the end.
  void end_lives(const plan::Program& program, const Streams& streams, const Storages& storages) {
    for (const plan::Stream& stream : program.streams) {
      if (stream.kind == plan::StreamKind::compute) continue;
      for (const plan::Call& call : stream.calls) {
        for (BufferId id : call.bindings) {
          plan::Buffer& buffer = rank_class_.buffers[id];
          if (!buffer.persistent()) buffer.last = std::max(buffer.last, streams.busy_until(call.moment));
        }
      }
    }
    for (std::uint32_t index = 0; index < instances_.size(); ++index) {
      if (!storages.all[StorageId{index}].result) continue;
      for (BufferId id : instances_[index]) {
        if (id.valid()) rank_class_.buffers[id].last = streams.moments() - 1;
      }
    }
  }

  // What every program keeps comes first; behind it each program lays out its own, over the others'.
  void place_buffers() {
    for (const plan::Tier tier : {plan::Tier::device, plan::Tier::host, plan::Tier::disk}) place_buffers(tier);
  }

  void place_buffers(plan::Tier tier) {
    Bytes persistent{0};
    for (plan::Buffer& buffer : rank_class_.buffers) {
      if (!buffer.persistent() || buffer.tier != tier) continue;
      buffer.offset = persistent;
      persistent += base::round_up(buffer.bytes, plan::kAlignment);
    }
    Bytes arena = persistent;
    for (std::int32_t program = 0; program < static_cast<std::int32_t>(rank_class_.programs.size()); ++program) {
      std::vector<Lifetime> lifetimes;
      std::vector<plan::Buffer*> owners;
      for (plan::Buffer& buffer : rank_class_.buffers) {
        if (buffer.program != program || buffer.tier != tier) continue;
        lifetimes.push_back({buffer.bytes, buffer.first, buffer.last});
        owners.push_back(&buffer);
      }
      const Layout layout = assign_offsets(lifetimes, plan::kAlignment);
      for (std::size_t index = 0; index < owners.size(); ++index) owners[index]->offset = persistent + layout.offsets[index];
      arena = std::max(arena, persistent + layout.total);
    }
    rank_class_.arena[static_cast<std::size_t>(tier)] = arena;
  }

  const LoweringInputs& inputs_;
  const RecomputeOrder& again_;
  plan::Plan plan_;
  plan::RankClass rank_class_;
  Pipe pipe_;
  Schedule schedule_;             // of the train program, where the pipe axis has several places
  bool splits_backward_ = false;  // the schedule has items for the gradients of weights
  std::int32_t pipe_place_ = 0;   // of the class in hand
  ops::Seat seat_;                // of the class in hand, on the tensor axis
  std::map<std::pair<std::size_t, std::size_t>, std::vector<plan::ProcedureId>> procedures_;
  std::unordered_map<std::string, BufferId> persistent_;
  std::vector<std::vector<BufferId>> instances_;  // by storage: for the step, then for each micro-batch
};

}  // namespace

plan::Plan lower(const LoweringInputs& inputs) {
  return fit_recompute(inputs, [&](const RecomputeOrder& again) { return Lowering(inputs, again).run(); });
}

}  // namespace plimsoll::lowering

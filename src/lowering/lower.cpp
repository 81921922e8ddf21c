// Pieces in the order of the graph, micro-batch after micro-batch; computation on one stream, collectives on another.
#include "lowering/lower.h"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>

#include "lowering/block_chain.h"
#include "lowering/fit.h"
#include "lowering/memory.h"
#include "lowering/procedures.h"
#include "lowering/recompute.h"
#include "lowering/split_data.h"
#include "lowering/split_tensor.h"
#include "lowering/storage.h"
#include "strategy/legality.h"

namespace plimsoll::lowering {

namespace {

using base::Bytes;
using graph::Phase;
using graph::runs_per_micro_batch;
using plan::BufferId;
using plan::BufferKind;

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

// What runs when: the order in which a rank issues its calls.
struct Item {
  std::size_t piece = 0;
  std::int32_t micro_batch = 0;
};

bool has_turn(graph::Turn turn, std::int32_t micro_batch, std::int32_t micro_batches) {
  switch (turn) {
    case graph::Turn::each: return true;
    case graph::Turn::first: return micro_batch == 0;
    case graph::Turn::last: return micro_batch + 1 == micro_batches;
  }
  return true;
}

std::vector<Item> order_of(const std::vector<Piece>& pieces, std::int32_t micro_batches) {
  std::vector<Item> order;
  std::size_t next = 0;
  const auto take_while = [&](auto wanted) {
    const std::size_t first = next;
    while (next < pieces.size() && wanted(pieces[next].phase)) ++next;
    return std::pair(first, next);
  };
  const auto [begin_first, begin_last] = take_while([](Phase phase) { return phase == Phase::begin; });
  for (std::size_t piece = begin_first; piece < begin_last; ++piece) order.push_back({piece, 0});
  const auto [first, last] = take_while(runs_per_micro_batch);
  for (std::int32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    for (std::size_t piece = first; piece < last; ++piece) {
      if (has_turn(pieces[piece].turn, micro_batch, micro_batches)) order.push_back({piece, micro_batch});
    }
  }
  for (std::size_t piece = last; piece < pieces.size(); ++piece) order.push_back({piece, 0});
  return order;
}

// Tokens between the compute and the communication stream. A collective waits for the compute call before it, so what is
// free at its moment is free for it; a compute call waits for the last collective that shares a buffer with it. What a
// collective uses lives until a compute call is known to run after it.
class Streams {
 public:
  explicit Streams(plan::Program& program) : program_(program) {
    program_.streams.push_back({.kind = plan::StreamKind::compute, .calls = {}});
  }

  // Appends the call, with its waits. Returns the moments at which collectives were found to be over by it.
  void add(plan::Call call, plan::StreamKind kind) {
    call.moment = moment_++;
    if (kind == plan::StreamKind::compute) {
      wait_for_collectives(call);
      stream(kind).calls.push_back(std::move(call));
      compute_since_ = true;
      return;
    }
    std::vector<plan::Call>& compute = stream(plan::StreamKind::compute).calls;
    if (!compute.empty() && compute_since_) {
      if (!compute.back().signals.valid()) compute.back().signals = new_token();
      call.waits.push_back(compute.back().signals);
    }
    compute_since_ = false;
    for (BufferId id : call.bindings) used_by_[id.index] = call.moment;
    open_.push_back(call.moment);
    stream(kind).calls.push_back(std::move(call));
  }

  std::int32_t moments() const { return moment_; }

  // The last moment before the collective at `moment` is known to be over; the program's last if nobody waits for it.
  std::int32_t busy_until(std::int32_t moment) const {
    const auto found = over_at_.find(moment);
    return found == over_at_.end() ? moment_ - 1 : found->second - 1;
  }

 private:
  plan::Stream& stream(plan::StreamKind kind) {
    for (plan::Stream& known : program_.streams) {
      if (known.kind == kind) return known;
    }
    program_.streams.push_back({.kind = kind, .calls = {}});
    return program_.streams.back();
  }

  plan::TokenId new_token() { return {program_.tokens++}; }

  void wait_for_collectives(plan::Call& call) {
    std::int32_t newest = -1;
    for (BufferId id : call.bindings) {
      const auto found = used_by_.find(id.index);
      if (found != used_by_.end()) newest = std::max(newest, found->second);
    }
    // Collectives run in order: one that is over says so of those before it.
    if (newest < 0 || over_at_.contains(newest)) return;
    for (plan::Call& collective : stream(plan::StreamKind::communication).calls) {
      if (collective.moment != newest) continue;
      if (!collective.signals.valid()) collective.signals = new_token();
      call.waits.push_back(collective.signals);
    }
    while (!open_.empty() && open_.front() <= newest) {
      over_at_[open_.front()] = call.moment;
      open_.pop_front();
    }
  }

  plan::Program& program_;
  std::int32_t moment_ = 0;
  bool compute_since_ = false;
  std::unordered_map<std::uint32_t, std::int32_t> used_by_;  // buffer -> last collective that uses it
  std::deque<std::int32_t> open_;                            // collectives not known to be over
  std::map<std::int32_t, std::int32_t> over_at_;             // collective -> the compute call that waited for it
};

class Lowering {
 public:
  Lowering(const LoweringInputs& inputs, const RecomputeOrder& again) : inputs_(inputs), again_(again) {}

  plan::Plan run() {
    plan_.model = inputs_.model;
    plan_.strategy = strategy::describe(inputs_.strategy);
    plan_.notes = again_.notes;
    plan_.threads = inputs_.threads;
    plan_.mesh = {
        .pipe = 1, .data = static_cast<std::int32_t>(inputs_.strategy.data), .tensor = static_cast<std::int32_t>(inputs_.strategy.tensor)};
    for (std::int32_t place = 0; place < plan_.mesh.tensor; ++place) add_class(place);
    return std::move(plan_);
  }

 private:
  // Ranks at one place of the tensor axis have the same parts of everything; their places on the data axis differ only in
  // which shard is their own.
  void add_class(std::int32_t tensor_place) {
    seat_ = {.members = plan_.mesh.tensor, .place = tensor_place};
    rank_class_ = {};
    persistent_.clear();
    rank_class_.name = plan_.mesh.tensor == 1 ? "all" : fmt::format("tensor {}", tensor_place);
    for (std::int32_t rank = 0; rank < plan_.mesh.ranks(); ++rank) {
      if (plan_.mesh.place(ops::Axis::tensor, rank) == tensor_place) rank_class_.ranks.push_back(rank);
    }
    for (const ProgramSource& source : inputs_.programs) add_program(source);
    place_buffers();
    plan_.classes.push_back(std::move(rank_class_));
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
  BufferId buffer_for(const graph::Graph& graph, const Storage& storage, StorageId id, std::int32_t program, const Item& item,
                      std::int32_t moment) {
    const graph::Value& value = graph.values[storage.value];
    const std::string& name = value.name;
    if (is_persistent(storage.kind)) {
      const auto [found, fresh] = persistent_.try_emplace(name);
      if (fresh) found->second = add_buffer({.name = name, .kind = storage.kind, .type = storage.type, .part = value.part});
      plan::Buffer& buffer = rank_class_.buffers[found->second];
      PLIMSOLL_CHECK(buffer.type == storage.type, "{} has two types", name);
      buffer.bytes = std::max(buffer.bytes, storage.bytes);
      return found->second;
    }
    const std::int32_t micro_batch = storage.all_micro_batches ? -1 : item.micro_batch;
    const auto [found, fresh] = instances_.try_emplace({id.index, micro_batch});
    if (fresh) {
      plan::Buffer buffer{
          .name = storage.all_micro_batches ? name : fmt::format("{}@{}", name, micro_batch), .kind = storage.kind, .type = storage.type};
      buffer.bytes = storage.bytes;
      buffer.program = program;
      buffer.first = storage.kind == BufferKind::input ? 0 : moment;
      found->second = add_buffer(std::move(buffer));
    }
    rank_class_.buffers[found->second].last = moment;
    return found->second;
  }

  BufferId add_buffer(plan::Buffer buffer) {
    buffer.bytes = std::max(buffer.bytes, Bytes{buffer.type.bytes()});
    return rank_class_.buffers.add(std::move(buffer));
  }

  void add_program(const ProgramSource& source) {
    const auto program_index = static_cast<std::int32_t>(rank_class_.programs.size());
    const graph::Graph slice = split_over_tensor(source.graph, seat_);
    graph::verify(slice, "splitting over the tensor axis");
    const graph::Graph lean = has_backward_pass(slice) ? recompute(slice, again_) : slice;
    graph::verify(lean, "recompute");
    const graph::Graph graph = split_over_data(lean, inputs_.strategy, source.micro_batches);
    graph::verify(graph, "splitting over the data axis");
    const Storages storages = share_storage(graph);
    const std::vector<Piece> pieces = pieces_of(graph);
    const ProcedureInputs procedure_inputs{graph, storages, inputs_.choose, inputs_.threads};
    struct Made {
      plan::ProcedureId procedure;
      std::vector<StorageId> slots;
    };
    std::map<std::pair<std::size_t, bool>, Made> made;
    instances_.clear();

    plan::Program program{.name = source.name, .micro_batches = source.micro_batches, .streams = {}};
    Streams streams(program);
    for (const Item& item : order_of(pieces, source.micro_batches)) {
      const Piece& piece = pieces[item.piece];
      const bool accumulate = item.micro_batch > 0;
      auto found = made.find({item.piece, accumulate});
      if (found == made.end()) {
        BoundProcedure bound = make_procedure(procedure_inputs, piece, accumulate);
        found = made.emplace(std::pair(item.piece, accumulate), Made{shared_procedure(std::move(bound.procedure)), std::move(bound.slots)})
                    .first;
      }
      const std::int32_t moment = streams.moments();
      plan::Call call{.procedure = found->second.procedure,
                      .moment = moment,
                      .micro_batch = item.micro_batch,
                      .label = piece.name,
                      .bindings = {},
                      .frame = {},
                      .waits = {},
                      .signals = {}};
      for (StorageId slot : found->second.slots)
        call.bindings.push_back(buffer_for(graph, storages.all[slot], slot, program_index, item, moment));
      const Bytes frame = plan_.procedures[call.procedure].frame;
      if (frame.count > 0) {
        plan::Buffer buffer{.name = fmt::format("frame of {}@{}", piece.name, item.micro_batch), .kind = BufferKind::frame};
        buffer.type = {base::DType::u8, base::Shape{frame.count}};
        buffer.program = program_index;
        buffer.first = buffer.last = moment;
        call.frame = add_buffer(std::move(buffer));
      }
      streams.add(std::move(call), piece.stream);
    }
    const std::int32_t last_moment = streams.moments() - 1;
    for (const plan::Stream& stream : program.streams) {
      if (stream.kind == plan::StreamKind::compute) continue;
      for (const plan::Call& call : stream.calls) {
        for (BufferId id : call.bindings) {
          plan::Buffer& buffer = rank_class_.buffers[id];
          if (!buffer.persistent()) buffer.last = std::max(buffer.last, streams.busy_until(call.moment));
        }
      }
    }
    for (const auto& [key, id] : instances_) {
      if (storages.all[StorageId{key.first}].result) rank_class_.buffers[id].last = last_moment;
    }
    rank_class_.programs.push_back(std::move(program));
  }

  // What every program keeps comes first; behind it each program lays out its own, over the others'.
  void place_buffers() {
    Bytes persistent{0};
    for (plan::Buffer& buffer : rank_class_.buffers) {
      if (!buffer.persistent()) continue;
      buffer.offset = persistent;
      persistent += base::round_up(buffer.bytes, plan::kAlignment);
    }
    Bytes arena = persistent;
    for (std::int32_t program = 0; program < static_cast<std::int32_t>(rank_class_.programs.size()); ++program) {
      std::vector<Lifetime> lifetimes;
      std::vector<plan::Buffer*> owners;
      for (plan::Buffer& buffer : rank_class_.buffers) {
        if (buffer.program != program) continue;
        lifetimes.push_back({buffer.bytes, buffer.first, buffer.last});
        owners.push_back(&buffer);
      }
      const Layout layout = assign_offsets(lifetimes, plan::kAlignment);
      for (std::size_t index = 0; index < owners.size(); ++index) owners[index]->offset = persistent + layout.offsets[index];
      arena = std::max(arena, persistent + layout.total);
    }
    rank_class_.arena[static_cast<std::size_t>(plan::Tier::device)] = arena;
  }

  const LoweringInputs& inputs_;
  const RecomputeOrder& again_;
  plan::Plan plan_;
  plan::RankClass rank_class_;
  ops::Seat seat_;  // of the class in hand, on the tensor axis
  std::map<std::pair<std::size_t, std::size_t>, std::vector<plan::ProcedureId>> procedures_;
  std::unordered_map<std::string, BufferId> persistent_;
  std::map<std::pair<std::uint32_t, std::int32_t>, BufferId> instances_;
};

}  // namespace

plan::Plan lower(const LoweringInputs& inputs) {
  return fit_recompute(inputs, [&](const RecomputeOrder& again) { return Lowering(inputs, again).run(); });
}

}  // namespace plimsoll::lowering

// One rank: pieces in the order of the graph, micro-batch after micro-batch, one stream.
#include "lowering/lower.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "lowering/memory.h"
#include "lowering/procedures.h"
#include "lowering/storage.h"

namespace plimsoll::lowering {

namespace {

using base::Bytes;
using graph::Phase;
using plan::BufferId;
using plan::BufferKind;

bool runs_per_micro_batch(Phase phase) { return phase == Phase::forward || phase == Phase::backward; }

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

// What runs when: the order of a single rank.
struct Item {
  std::size_t piece = 0;
  std::int32_t micro_batch = 0;
};

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
    for (std::size_t piece = first; piece < last; ++piece) order.push_back({piece, micro_batch});
  }
  for (std::size_t piece = last; piece < pieces.size(); ++piece) order.push_back({piece, 0});
  return order;
}

class Lowering {
 public:
  explicit Lowering(const LoweringInputs& inputs) : inputs_(inputs) {}

  plan::Plan run() {
    plan_.model = inputs_.model;
    plan_.strategy = "one rank, everything kept";
    plan_.threads = inputs_.threads;
    rank_class_.name = "all";
    rank_class_.ranks = {0};
    for (const ProgramSource& source : inputs_.programs) add_program(source);
    place_buffers();
    plan_.classes.push_back(std::move(rank_class_));
    return std::move(plan_);
  }

 private:
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
    const std::string& name = graph.values[storage.value].name;
    if (is_persistent(storage.kind)) {
      const auto [found, fresh] = persistent_.try_emplace(name);
      if (fresh) found->second = add_buffer({.name = name, .kind = storage.kind, .type = storage.type});
      PLIMSOLL_CHECK(rank_class_.buffers[found->second].type == storage.type, "{} has two types", name);
      return found->second;
    }
    const std::int32_t micro_batch = storage.gradient ? -1 : item.micro_batch;
    const auto [found, fresh] = instances_.try_emplace({id.index, micro_batch});
    if (fresh) {
      plan::Buffer buffer{
          .name = storage.gradient ? name : fmt::format("{}@{}", name, micro_batch), .kind = storage.kind, .type = storage.type};
      buffer.program = program;
      buffer.first = storage.kind == BufferKind::input ? 0 : moment;
      found->second = add_buffer(std::move(buffer));
    }
    rank_class_.buffers[found->second].last = moment;
    return found->second;
  }

  BufferId add_buffer(plan::Buffer buffer) {
    buffer.bytes = Bytes{buffer.type.bytes()};
    return rank_class_.buffers.add(std::move(buffer));
  }

  void add_program(const ProgramSource& source) {
    const auto program_index = static_cast<std::int32_t>(rank_class_.programs.size());
    const Storages storages = share_storage(source.graph);
    const std::vector<Piece> pieces = pieces_of(source.graph);
    const ProcedureInputs procedure_inputs{source.graph, storages, inputs_.choose, inputs_.threads};
    struct Made {
      plan::ProcedureId procedure;
      std::vector<StorageId> slots;
    };
    std::map<std::pair<std::size_t, bool>, Made> made;
    instances_.clear();

    plan::Program program{.name = source.name, .micro_batches = source.micro_batches, .streams = {}};
    plan::Stream stream;
    for (const Item& item : order_of(pieces, source.micro_batches)) {
      const Piece& piece = pieces[item.piece];
      const bool accumulate = item.micro_batch > 0;
      auto found = made.find({item.piece, accumulate});
      if (found == made.end()) {
        BoundProcedure bound = make_procedure(procedure_inputs, piece, accumulate);
        found = made.emplace(std::pair(item.piece, accumulate), Made{shared_procedure(std::move(bound.procedure)), std::move(bound.slots)})
                    .first;
      }
      const auto moment = static_cast<std::int32_t>(stream.calls.size());
      plan::Call call{.procedure = found->second.procedure,
                      .micro_batch = item.micro_batch,
                      .label = piece.name,
                      .bindings = {},
                      .frame = {},
                      .waits = {},
                      .signals = {}};
      for (StorageId slot : found->second.slots)
        call.bindings.push_back(buffer_for(source.graph, storages.all[slot], slot, program_index, item, moment));
      const Bytes frame = plan_.procedures[call.procedure].frame;
      if (frame.count > 0) {
        plan::Buffer buffer{.name = fmt::format("frame of {}@{}", piece.name, item.micro_batch), .kind = BufferKind::frame};
        buffer.type = {base::DType::u8, base::Shape{frame.count}};
        buffer.program = program_index;
        buffer.first = buffer.last = moment;
        call.frame = add_buffer(std::move(buffer));
      }
      stream.calls.push_back(std::move(call));
    }
    const auto last_moment = static_cast<std::int32_t>(stream.calls.size()) - 1;
    for (const auto& [key, id] : instances_) {
      if (storages.all[StorageId{key.first}].result) rank_class_.buffers[id].last = last_moment;
    }
    program.streams.push_back(std::move(stream));
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
  plan::Plan plan_;
  plan::RankClass rank_class_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<plan::ProcedureId>> procedures_;
  std::unordered_map<std::string, BufferId> persistent_;
  std::map<std::pair<std::uint32_t, std::int32_t>, BufferId> instances_;
};

}  // namespace

plan::Plan lower(const LoweringInputs& inputs) { return Lowering(inputs).run(); }

}  // namespace plimsoll::lowering

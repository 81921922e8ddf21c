// Passes over the graph for each class of ranks, then pieces in the order of the schedule: computation on one stream, collectives
// and messages on others.
#include "lowering/lower.h"

#include <algorithm>
#include <map>
#include <thread>
#include <unordered_map>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parallel.h"
#include "lowering/carry_update.h"
#include "lowering/fit.h"
#include "lowering/issue_calls.h"
#include "lowering/issue_order.h"
#include "lowering/memory.h"
#include "lowering/procedures.h"
#include "lowering/rank_graph.h"
#include "lowering/recompute.h"
#include "lowering/rows.h"
#include "lowering/storage.h"
#include "lowering/streams.h"
#include "lowering/versions.h"
#include "strategy/legality.h"

namespace plimsoll::lowering {

namespace {

using base::Bytes;
using plan::BufferId;
using plan::BufferKind;

// Procedures that do the same are one.
class Procedures {
 public:
  plan::ProcedureId add(plan::Procedure procedure) {
    std::vector<plan::ProcedureId>& alike = alike_[{procedure.instructions.size(), procedure.slots.size()}];
    for (plan::ProcedureId id : alike) {
      if (same_work(all_[id], procedure)) return id;
    }
    alike.push_back(all_.add(std::move(procedure)));
    return alike.back();
  }

  const plan::Procedure& operator[](plan::ProcedureId id) const { return all_[id]; }
  base::IdVector<plan::ProcedureId, plan::Procedure> take() { return std::move(all_); }

 private:
  base::IdVector<plan::ProcedureId, plan::Procedure> all_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<plan::ProcedureId>> alike_;
};

// Ranks at one place of the pipe axis and one of the tensor axis have the same parts of everything; their places on the data
// axis differ only in which shard is their own - and, where places of the pipe axis have degrees of their own, in which micro-batches
// they take: then every rank is a class.
struct ClassPlace {
  std::int32_t pipe = 0;
  std::int32_t data = 0;
  std::int32_t tensor = 0;
};

std::vector<ClassPlace> class_places(const plan::Mesh& mesh) {
  std::vector<ClassPlace> places;
  for (std::int32_t pipe = 0; pipe < mesh.pipe; ++pipe) {
    const plan::Degrees degrees = mesh.degrees(pipe);
    for (std::int32_t data = 0; data < (mesh.even() ? 1 : degrees.data); ++data) {
      for (std::int32_t tensor = 0; tensor < degrees.tensor; ++tensor) places.push_back({pipe, data, tensor});
    }
  }
  return places;
}

// A class whose calls name procedures of its own.
struct LoweredClass {
  plan::RankClass rank_class;
  base::IdVector<plan::ProcedureId, plan::Procedure> procedures;
};

class ClassLowering {
 public:
  ClassLowering(const LoweringInputs& inputs, const RankGraphs& graphs, const ClassPlace& place)
      : inputs_(inputs),
        graphs_(graphs),
        place_(place),
        seat_{.members = graphs.mesh().degrees(place.pipe).tensor, .place = place.tensor} {}

  LoweredClass run() {
    const plan::Mesh& mesh = graphs_.mesh();
    rank_class_.name = class_name();
    const std::int32_t first = mesh.first_rank(place_.pipe) + place_.data * mesh.degrees(place_.pipe).tensor + place_.tensor;
    rank_class_.ranks = mesh.even() ? mesh.group(ops::Axis::data, first) : std::vector{first};
    for (const ProgramSource& source : inputs_.programs) add_program(source);
    if (graphs_.update() == HostUpdate::under_forward)
      add_program({.name = std::string(kFlush), .graph = inputs_.programs.front().graph, .waiting_update_only = true});
    if (inputs_.rows != nullptr) add_row_programs(*inputs_.rows);
    place_buffers();
    return {std::move(rank_class_), procedures_.take()};
  }

 private:
  std::string class_name() const {
    const plan::Degrees degrees = graphs_.mesh().degrees(place_.pipe);
    std::vector<std::string> places;
    if (graphs_.mesh().pipe > 1) places.push_back(fmt::format("pipe {}", place_.pipe));
    if (!graphs_.mesh().even() && degrees.data > 1) places.push_back(fmt::format("data {}", place_.data));
    if (degrees.tensor > 1) places.push_back(fmt::format("tensor {}", place_.tensor));
    return places.empty() ? "all" : fmt::format("{}", fmt::join(places, ", "));
  }

  // One buffer per storage: for the whole plan, for a batch, or for a micro-batch. Scalars are those of a batch, and a weight that
  // has been updated since is the one that was put aside.
  BufferId buffer_for(const graph::Graph& graph, const Storage& storage, StorageId id, std::int32_t program, const Issue& issue,
                      std::int32_t moment) {
    const graph::Value& value = graph.values[storage.value];
    if (versions_.is_old(id, issue)) return put_aside(storage, value.name, issue.version, program, moment);
    const std::string name =
        issue.batch > 0 && storage.kind == BufferKind::scalars ? fmt::format("{}@{}", value.name, issue.batch) : value.name;
    if (is_persistent(storage.kind)) {
      const auto [found, fresh] = persistent_.try_emplace(name);
      if (fresh)
        found->second = add_buffer(
            {.name = name, .kind = storage.kind, .tier = storage.tier, .type = storage.type, .part = value.part, .state = value.state});
      plan::Buffer& buffer = rank_class_.buffers[found->second];
      PLIMSOLL_CHECK(buffer.type == storage.type, "{} has two types", name);
      buffer.bytes = std::max(buffer.bytes, storage.bytes);
      return found->second;
    }
    std::vector<BufferId>& instances = instances_[id.index];
    const auto number = static_cast<std::size_t>(storage.all_micro_batches ? issue.batch : issue.micro_batch);
    if (number >= instances.size()) instances.resize(number + 1);
    if (!instances[number].valid()) {
      plan::Buffer buffer{.name = storage.all_micro_batches && number == 0 ? name : fmt::format("{}@{}", name, number),
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

  BufferId put_aside(const Storage& storage, const std::string& name, std::int32_t version, std::int32_t program, std::int32_t moment) {
    const auto [found, fresh] = stashes_.try_emplace({name, version});
    if (fresh) {
      plan::Buffer buffer{
          .name = fmt::format("{} after {} updates", name, version), .kind = BufferKind::stash, .tier = storage.tier, .type = storage.type};
      buffer.bytes = storage.bytes;
      buffer.program = program;
      buffer.first = moment;
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
    add_program(graphs_.graph_at(source, place_.pipe, seat_, place_.data),
                {.name = source.name, .micro_batches = source.micro_batches, .batches = graphs_.batches(source), .cadence = source.cadence},
                graphs_.items_at(source, place_.pipe, place_.data));
  }

  // They are run between other programs, whose inputs may be there already: so they have nothing on the device but what is there anyway.
  // Ranks without the table have nothing to do in them.
  void add_row_programs(const RowTable& table) {
    if (!persistent_.contains(table.weight)) {
      for (const std::string_view name : {kFetchRows, kStoreRows})
        rank_class_.programs.push_back({.name = std::string(name), .streams = {{.kind = plan::StreamKind::compute, .calls = {}}}});
      return;
    }
    const FindBuffer find = [&](const std::string& name) {
      const auto found = persistent_.find(name);
      return found == persistent_.end() ? nullptr : &rank_class_.buffers[found->second];
    };
    add_program(fetch_rows(table, find), {.name = std::string(kFetchRows)}, {});
    add_program(store_rows(table, find), {.name = std::string(kStoreRows)}, {});
    // The first has what fills up the records.
    const Bytes others = Bytes{table.whole.bytes()} * static_cast<std::int64_t>(table.tensors.size() - 1);
    plan::Buffer& first = rank_class_.buffers[persistent_.at(table.tensors[0].on_disk)];
    first.bytes = plan::record_bytes(table.whole, table.tensors.size()) * table.whole.shape[0] - others;
    for (const plan::Buffer& buffer : rank_class_.buffers) {
      const bool theirs = !buffer.persistent() && buffer.program >= static_cast<std::int32_t>(rank_class_.programs.size()) - 2;
      PLIMSOLL_CHECK(!theirs || buffer.tier != plan::Tier::device, "{} would overwrite what other programs read", buffer.name);
    }
  }

  struct ProgramShape {
    std::string name;
    std::int32_t micro_batches = 1;
    std::int32_t batches = 1;
    plan::Cadence cadence = {};
  };

  // The calls of a program, bound to buffers.
  struct Calls {
    ClassLowering& lowering;
    const graph::Graph& graph;
    const Storages& storages;
    const std::vector<Piece>& pieces;
    const ProcedureInputs& inputs;
    std::int32_t program = 0;
    MadeProcedures made{};
    const Made* wanted = nullptr;

    void prepare(const Issue& issue) {
      wanted = &made.of(inputs, issue, [&](plan::Procedure procedure) { return lowering.procedures_.add(std::move(procedure)); });
    }

    plan::Call call(const Issue& issue, std::int32_t moment) const {
      const Piece& piece = pieces[issue.piece];
      plan::Call made_call = call_of(wanted->procedure, issue, piece.name);
      made_call.moment = moment;
      for (StorageId slot : wanted->slots)
        made_call.bindings.push_back(lowering.buffer_for(graph, storages.all[slot], slot, program, issue, moment));
      const Bytes frame = lowering.procedures_[made_call.procedure].frame;
      if (frame.count > 0) {
        plan::Buffer buffer{.name = fmt::format("frame of {}@{}", piece.name, issue.micro_batch), .kind = BufferKind::frame};
        buffer.tier = piece.tier;
        buffer.type = {base::DType::u8, base::Shape{frame.count}};
        buffer.program = program;
        buffer.first = buffer.last = moment;
        made_call.frame = lowering.add_buffer(std::move(buffer));
      }
      return made_call;
    }

    plan::Call stash(graph::BlockId block, const std::vector<StorageId>& weights, const Issue& update, std::int32_t moment) const {
      plan::Procedure copies = stash_procedure(graph, storages, block, weights);
      plan::Call made_call = call_of({}, update, copies.name);
      made_call.moment = moment;
      for (StorageId id : weights) {
        const Storage& storage = storages.all[id];
        const std::string& name = graph.values[storage.value].name;
        made_call.bindings.push_back(lowering.persistent_.at(name));
        made_call.bindings.push_back(lowering.put_aside(storage, name, update.batch, program, moment));
      }
      made_call.procedure = lowering.procedures_.add(std::move(copies));
      return made_call;
    }

    plan::Call pause(const Issue& issue) const {
      return call_of(lowering.procedures_.add({.name = "pause", .slots = {}, .temporaries = {}, .instructions = {}}), issue, "pause");
    }

    static plan::Call call_of(plan::ProcedureId procedure, const Issue& issue, const std::string& label) {
      return {.procedure = procedure,
              .micro_batch = issue.micro_batch,
              .label = label,
              .bindings = {},
              .frame = {},
              .waits = {},
              .signals = {}};
    }
  };

  void add_program(const graph::Graph& graph, const ProgramShape& shape, const std::vector<strategy::schedules::Item>& items) {
    const Storages storages = share_storage(graph);
    const std::vector<Piece> pieces = pieces_of(graph, inputs_.host_beside);
    const ProcedureInputs procedure_inputs(graph, storages, pieces, inputs_.choose, inputs_.threads);
    instances_.assign(storages.all.size(), {});
    stashes_.clear();
    versions_ = Versions(graph, storages, items);
    plan::Program program{
        .name = shape.name, .micro_batches = shape.micro_batches * shape.batches, .streams = {}, .cadence = shape.cadence};
    Streams streams(program);
    Calls calls{*this, graph, storages, pieces, procedure_inputs, static_cast<std::int32_t>(rank_class_.programs.size())};
    issue_calls(issue_order(graph, pieces, items, shape.micro_batches, shape.batches), pieces, versions_, streams, calls);
    end_lives(program, streams, storages);
    rank_class_.programs.push_back(std::move(program));
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
      persistent += base::round_up(buffer.bytes, plan::alignment_of(tier));
    }
    const bool drives = std::any_of(rank_class_.buffers.begin(), rank_class_.buffers.end(),
                                    [](const plan::Buffer& buffer) { return buffer.tier == plan::Tier::disk; });
    Bytes arena = persistent;
    for (std::int32_t program = 0; program < static_cast<std::int32_t>(rank_class_.programs.size()); ++program) {
      std::vector<Lifetime> lifetimes;
      std::vector<plan::Buffer*> owners;
      for (plan::Buffer& buffer : rank_class_.buffers) {
        if (buffer.program != program || buffer.tier != tier) continue;
        lifetimes.push_back({buffer.bytes, buffer.first, buffer.last});
        owners.push_back(&buffer);
      }
      const Layout layout = lay_out(lifetimes, tier, persistent, drives);
      for (std::size_t index = 0; index < owners.size(); ++index) owners[index]->offset = layout.offsets[index];
      arena = std::max(arena, layout.total);
    }
    rank_class_.arena[static_cast<std::size_t>(tier)] = arena;
  }

  const LoweringInputs& inputs_;
  const RankGraphs& graphs_;
  ClassPlace place_;
  ops::Seat seat_;  // on the tensor axis
  plan::RankClass rank_class_;
  Procedures procedures_;
  std::unordered_map<std::string, BufferId> persistent_;
  std::vector<std::vector<BufferId>> instances_;  // by storage: of each micro-batch, or of each batch
  Versions versions_;                             // of the weights, in the program in hand
  std::map<std::pair<std::string, std::int32_t>, BufferId> stashes_;
};

// Classes know nothing of each other, so each is lowered by itself; a pipeline of hundreds takes seconds.
std::vector<LoweredClass> lower_classes(const LoweringInputs& inputs, const RankGraphs& graphs) {
  const std::vector<ClassPlace> places = class_places(graphs.mesh());
  std::vector<LoweredClass> lowered(places.size());
  const auto threads = std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), places.size());
  base::in_parallel(static_cast<std::int64_t>(threads), [&](std::int64_t thread) {
    for (auto index = static_cast<std::size_t>(thread); index < places.size(); index += threads)
      lowered[index] = ClassLowering(inputs, graphs, places[index]).run();
  });
  return lowered;
}

plan::Plan lower_as(const LoweringInputs& inputs, const RecomputeOrder& again) {
  const RankGraphs graphs(inputs, again);
  plan::Plan plan;
  plan.model = inputs.model;
  plan.strategy = strategy::describe(inputs.strategy);
  plan.notes = again.notes;
  plan.threads = inputs.threads;
  plan.mesh = graphs.mesh();
  Procedures procedures;
  for (LoweredClass& lowered : lower_classes(inputs, graphs)) {
    std::vector<plan::ProcedureId> shared;
    for (plan::Procedure& own : lowered.procedures) shared.push_back(procedures.add(std::move(own)));
    for (plan::Program& program : lowered.rank_class.programs) {
      for (plan::Stream& stream : program.streams) {
        for (plan::Call& call : stream.calls) call.procedure = shared[call.procedure.index];
      }
    }
    plan.classes.push_back(std::move(lowered.rank_class));
  }
  plan.procedures = procedures.take();
  const std::string note = update_note(inputs.programs.front().graph, graphs.update(), plan::fullest_class(plan));
  if (!note.empty()) plan.notes.push_back(note);
  if (inputs.rows != nullptr) plan.notes.push_back(note_of(*inputs.rows));
  return plan;
}

}  // namespace

plan::Plan lower(const LoweringInputs& inputs) {
  return with_rows_apart(inputs, [](const LoweringInputs& apart) {
    return fit_update(apart, 1, [](const LoweringInputs& fitted) { return fit_recompute(fitted, lower_as); });
  });
}

}  // namespace plimsoll::lowering

#include "lowering/lower_class.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include <fmt/ranges.h>

#include "base/error.h"
#include "lowering/issue_calls.h"
#include "lowering/layout/issue_order.h"
#include "lowering/layout/memory.h"
#include "lowering/layout/storage.h"
#include "lowering/layout/streams.h"
#include "lowering/layout/versions.h"
#include "lowering/passes/carry_update.h"
#include "lowering/rows.h"

namespace plimsoll::lowering {

using base::Bytes;
using plan::BufferId;
using plan::BufferKind;

// What the calls of a program are made from.
struct ProgramWork {
  ProgramWork(const ProgramSource& whose, graph::Graph its_graph, const plan::Mesh& mesh, const LoweringInputs& lowering)
      : source(whose),
        graph(std::move(its_graph)),
        storages(share_storage(graph)),
        pieces(pieces_of(graph, mesh, lowering.host_beside)),
        inputs(graph, storages, pieces, lowering.choose, lowering.threads) {
    for (const Piece& piece : pieces) {
      labels.emplace_back(piece.name);
      frames.emplace_back("frame of " + piece.name);
    }
    for (const Storage& storage : storages.all) names.emplace_back(graph.values[storage.value].name);
  }
  ProgramWork(const ProgramWork&) = delete;
  ProgramWork& operator=(const ProgramWork&) = delete;

  ProgramSource source;
  graph::Graph graph;
  Storages storages;
  std::vector<Piece> pieces;
  ProcedureInputs inputs;
  MadeProcedures made{};  // by entry
  // What calls and buffers are named after, each text once: by piece, by piece, and by storage.
  std::vector<plan::Name> labels{};
  std::vector<plan::Name> frames{};
  std::vector<plan::Name> names{};
};

namespace {

void name_class(plan::RankClass& rank_class, const plan::Mesh& mesh, std::int32_t first_rank) {
  std::vector<std::string> places;
  for (const plan::MeshAxis& entry : mesh.table()) {
    const ops::Axis& axis = entry.row.axis;
    const bool told = !entry.row.part_of.valid() && (entry.row.differs() || !mesh.even());
    if (told && mesh.extent(axis, first_rank) > 1) places.push_back(fmt::format("{} {}", axis.name(), mesh.place(axis, first_rank)));
  }
  rank_class.name = places.empty() ? "all" : fmt::format("{}", fmt::join(places, ", "));
  rank_class.ranks = mesh.alike(first_rank);
}

std::string role_of(const LoweringInputs& inputs, const plan::Mesh& mesh, std::int32_t first_rank) {
  if (!inputs.role_of) return {};
  std::string role = inputs.role_of(mesh, first_rank);
  for (const std::int32_t rank : mesh.alike(first_rank)) {
    if (const std::string other = inputs.role_of(mesh, rank); other != role)
      base::not_legal("ranks {} and {} run the same programs, but have the roles \"{}\" and \"{}\"; give both the same", first_rank, rank,
                      role, other);
  }
  return role;
}

// Classes number the procedures that they call as they make them.
plan::EntryId entry_of(plan::ProcedureId own) { return {own.index}; }

// Whether the same calls come of both, but for what their procedures do inside.
bool same_calls(const ProgramWork& a, const ProgramWork& b) {
  const auto same_node = [](const graph::Node& x, const graph::Node& y) {
    return x.op.index() == y.op.index() && x.inputs == y.inputs && x.outputs == y.outputs && x.block == y.block && x.phase == y.phase &&
           x.turn == y.turn && x.ahead == y.ahead;
  };
  const auto same = [](const auto& x, const auto& y, const auto& alike) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), alike);
  };
  return same(a.graph.nodes, b.graph.nodes, same_node) &&
         same(a.graph.values, b.graph.values, [](const graph::Value& x, const graph::Value& y) { return x.name == y.name; }) &&
         same(a.graph.blocks, b.graph.blocks,
              [](const graph::Block& x, const graph::Block& y) { return x.name == y.name && x.stage == y.stage; }) &&
         a.pieces == b.pieces && a.storages.all == b.storages.all && a.storages.of_value == b.storages.of_value;
}

// The procedures of a class whose calls are those of another, in place of the other's.
class OtherProcedures {
 public:
  explicit OtherProcedures(const base::IdVector<plan::ProcedureId, plan::Procedure>& of) : made_(of), known_(of.size(), false) {}

  // False where a call of the one could not be a call of the other.
  bool add(const ProgramWork& from, const ProgramWork& work) {
    for (const auto& [key, made] : from.made.all()) {
      const auto& [piece, accumulate] = key;
      BoundProcedure bound = make_procedure(work.inputs, piece, accumulate);
      plan::Procedure& mine = made_[made.procedure];
      const bool known = known_[made.procedure.index];
      if (bound.slots != made.slots || !plan::same_form(bound.procedure, mine)) return false;
      if (known && mine.instructions != bound.procedure.instructions) return false;  // what is one there are two here
      const bool same_frame = std::equal(
          mine.temporaries.begin(), mine.temporaries.end(), bound.procedure.temporaries.begin(), bound.procedure.temporaries.end(),
          [](const plan::Temporary& x, const plan::Temporary& y) { return x.type == y.type && x.offset == y.offset; });
      if (!same_frame) return false;
      mine.instructions = std::move(bound.procedure.instructions);
      known_[made.procedure.index] = true;
    }
    return true;
  }

  base::IdVector<plan::ProcedureId, plan::Procedure> take() { return std::move(made_); }

 private:
  base::IdVector<plan::ProcedureId, plan::Procedure> made_;
  std::vector<bool> known_;
};

class ClassMaker {
 public:
  ClassMaker(const LoweringInputs& inputs, const RankGraphs& graphs, std::int32_t first_rank)
      : inputs_(inputs), graphs_(graphs), first_rank_(first_rank) {}

  LoweredClass run() {
    name_class(rank_class_, graphs_.mesh(), first_rank_);
    rank_class_.role = role_of(inputs_, graphs_.mesh(), first_rank_);
    for (const ProgramSource& source : inputs_.programs) {
      if (source.is_for(rank_class_.role)) add_program(source);
    }
    if (graphs_.update() == HostUpdate::under_forward) {
      add_program({.name = std::string(kFlush),
                   .graph = inputs_.programs.front().graph,
                   .waiting_update_only = true,
                   .cadence = {.when = plan::Cadence::When::ahead}});
    }
    if (inputs_.rows != nullptr) add_row_programs(*inputs_.rows);
    place_buffers();
    buffers_.shrink_to_fit();
    rank_class_.buffers = std::move(buffers_);
    return {std::move(rank_class_), procedures_.take()};
  }

  std::vector<std::unique_ptr<const ProgramWork>> take_works() { return std::move(works_); }

 private:
  // One buffer per storage: for the whole plan, for a batch, or for a micro-batch. Scalars are those of a batch, and a weight that
  // has been updated since is the one that was put aside.
  BufferId buffer_for(const graph::Graph& graph, const Storage& storage, StorageId id, std::int32_t program, const Issue& issue,
                      std::int32_t moment) {
    const graph::Value& value = graph.values[storage.value];
    if (versions_.is_old(id, issue)) return put_aside(storage, value.name, issue.version, program, moment);
    const bool later = issue.batch > 0 && storage.kind == BufferKind::scalars;
    const std::string again = later ? fmt::format("{}@{}", value.name, issue.batch) : "";
    const std::string& name = later ? again : value.name;
    if (is_persistent(storage.kind)) {
      const auto [found, fresh] = persistent_.try_emplace(name);
      if (fresh) {
        found->second = add_buffer({.name = name, .kind = storage.kind, .tier = storage.tier, .type = storage.type, .state = value.state});
        if (value.part != ops::Part{}) rank_class_.parts.emplace(found->second, value.part);
      }
      plan::Buffer& buffer = buffers_[found->second];
      PLIMSOLL_CHECK(buffer.type == storage.type, "{} has two types", name);
      buffer.bytes = std::max(buffer.bytes, storage.bytes);
      return found->second;
    }
    std::vector<BufferId>& instances = instances_[id.index];
    const auto number = static_cast<std::size_t>(storage.all_micro_batches ? issue.batch : issue.micro_batch);
    if (number >= instances.size()) instances.resize(number + 1);
    if (!instances[number].valid()) {
      plan::Buffer buffer{.name = storage.all_micro_batches && number == 0 ? names_[id.index] : names_[id.index].numbered(number),
                          .kind = storage.kind,
                          .tier = storage.tier,
                          .type = storage.type};
      buffer.bytes = storage.bytes;
      buffer.program = program;
      buffer.first = storage.kind == BufferKind::input ? 0 : moment;
      instances[number] = add_buffer(std::move(buffer));
    }
    buffers_[instances[number]].last = moment;
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
    buffers_[found->second].last = moment;
    return found->second;
  }

  BufferId add_buffer(plan::Buffer buffer) {
    buffer.bytes = std::max(buffer.bytes, Bytes{buffer.type.bytes()});
    return buffers_.add(std::move(buffer));
  }

  void add_program(const ProgramSource& source) {
    auto work = std::make_unique<ProgramWork>(source, graphs_.graph_at(source, first_rank_), graphs_.mesh(), inputs_);
    add_program(*work,
                {.name = source.name, .micro_batches = source.micro_batches, .batches = graphs_.batches(source), .cadence = source.cadence},
                graphs_.items_at(source, first_rank_));
    works_.push_back(std::move(work));
  }

  void add_program(graph::Graph graph, std::string_view name, plan::Cadence::When when) {
    ProgramWork work(inputs_.programs.front(), std::move(graph), graphs_.mesh(), inputs_);
    add_program(work, {.name = std::string(name), .cadence = {.when = when}}, {});
  }

  // They are run between other programs, whose inputs may be there already: so they have nothing on the device but what is there anyway.
  // Ranks without the table have nothing to do in them.
  void add_row_programs(const RowTable& table) {
    using When = plan::Cadence::When;
    if (!persistent_.contains(table.weight)) {
      for (const auto& [name, when] : {std::pair{kFetchRows, When::ahead}, {kStoreRows, When::behind}})
        rank_class_.programs.push_back({.name = std::string(name),
                                        .streams = std::vector<plan::Stream>{{.kind = plan::StreamKind::compute, .calls = {}}},
                                        .cadence = {.when = when},
                                        .touches = plan::Touches{}});
      return;
    }
    const FindBuffer find = [&](const std::string& name) {
      const auto found = persistent_.find(name);
      return found == persistent_.end() ? KeptBuffer{} : KeptBuffer{&buffers_[found->second], rank_class_.part_of(found->second)};
    };
    add_program(fetch_rows(table, find), kFetchRows, When::ahead);
    add_program(store_rows(table, find), kStoreRows, When::behind);
    // The first has what fills up the records.
    const Bytes others = Bytes{table.whole.bytes()} * static_cast<std::int64_t>(table.tensors.size() - 1);
    plan::Buffer& first = buffers_[persistent_.at(table.tensors[0].on_disk)];
    first.bytes = plan::record_bytes(table.whole, table.tensors.size()) * table.whole.shape[0] - others;
    for (const plan::Buffer& buffer : buffers_) {
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
    ClassMaker& lowering;
    ProgramWork& work;
    std::int32_t program = 0;
    const Made* wanted = nullptr;

    void prepare(const Issue& issue) {
      wanted = &work.made.of(work.inputs, issue, [&](plan::Procedure procedure) { return lowering.procedures_.add(std::move(procedure)); });
    }

    plan::Call call(const Issue& issue, std::int32_t moment) const {
      const Piece& piece = work.pieces[issue.piece];
      plan::Call made_call = call_of(wanted->procedure, issue, work.labels[issue.piece]);
      made_call.moment = moment;
      made_call.bindings.reserve(wanted->slots.size());
      for (StorageId slot : wanted->slots)
        made_call.bindings.push_back(lowering.buffer_for(work.graph, work.storages.all[slot], slot, program, issue, moment));
      const Bytes frame = lowering.procedures_[wanted->procedure].frame;
      if (frame.count > 0) {
        plan::Buffer buffer{.name = work.frames[issue.piece].numbered(static_cast<std::size_t>(issue.micro_batch)),
                            .kind = BufferKind::frame};
        buffer.tier = piece.tier;
        buffer.type = {base::DType::u8, base::Shape{frame.count}};
        buffer.program = program;
        buffer.first = buffer.last = moment;
        made_call.frame = lowering.add_buffer(std::move(buffer));
      }
      return made_call;
    }

    plan::Call stash(graph::BlockId block, const std::vector<StorageId>& weights, const Issue& update, std::int32_t moment) const {
      plan::Procedure copies = stash_procedure(work.graph, work.storages, block, weights);
      plan::Call made_call = call_of(plan::ProcedureId{}, update, copies.name);
      made_call.moment = moment;
      for (StorageId id : weights) {
        const Storage& storage = work.storages.all[id];
        const std::string& name = work.graph.values[storage.value].name;
        made_call.bindings.push_back(lowering.persistent_.at(name));
        made_call.bindings.push_back(lowering.put_aside(storage, name, update.batch, program, moment));
      }
      made_call.entry = entry_of(lowering.procedures_.add(std::move(copies)));
      return made_call;
    }

    plan::Call pause(const Issue& issue) const {
      return call_of(lowering.procedures_.add({.name = "pause", .slots = {}, .temporaries = {}, .instructions = {}}), issue, "pause");
    }

    static plan::Call call_of(plan::ProcedureId procedure, const Issue& issue, const plan::Name& label) {
      return {.entry = entry_of(procedure),
              .micro_batch = issue.micro_batch,
              .label = label,
              .bindings = {},
              .frame = {},
              .waits = {},
              .signals = {}};
    }
  };

  void add_program(ProgramWork& work, const ProgramShape& shape, const std::vector<strategy::schedules::Item>& items) {
    instances_.assign(work.storages.all.size(), {});
    names_ = work.names;
    stashes_.clear();
    versions_ = Versions(work.graph, work.storages, items);
    plan::Program program{
        .name = shape.name, .micro_batches = shape.micro_batches * shape.batches, .streams = {}, .cadence = shape.cadence};
    Streams streams(program);
    Calls calls{*this, work, static_cast<std::int32_t>(rank_class_.programs.size())};
    issue_calls(issue_order(work.graph, work.pieces, items, shape.micro_batches, shape.batches), work.pieces, versions_, streams, calls);
    end_lives(program, streams, work.storages);
    for (plan::Stream& stream : program.streams) stream.calls.shrink_to_fit();
    program.touches = touches_of(work, shape.batches);
    rank_class_.programs.push_back(std::move(program));
  }

  // What the graph says that the program reads and writes of what outlives it.
  plan::Touches touches_of(const ProgramWork& work, std::int32_t batches) const {
    std::set<BufferId> reads;
    std::set<BufferId> writes;
    const auto note = [&](std::span<const graph::ValueId> values, std::set<BufferId>& into) {
      for (const graph::ValueId value : values) {
        const StorageId id = value.valid() ? work.storages.of(value) : StorageId{};
        if (!id.valid() || !is_persistent(work.storages.all[id].kind)) continue;
        const std::string& name = work.graph.values[work.storages.all[id].value].name;
        into.insert(persistent_.at(name));
        for (std::int32_t batch = 1; batch < batches && work.storages.all[id].kind == BufferKind::scalars; ++batch)
          into.insert(persistent_.at(fmt::format("{}@{}", name, batch)));
      }
    };
    for (const graph::Node& node : work.graph.nodes) {
      if (ops::is_view(node.op)) continue;
      // A copy reads what it copies; where it goes into memory that is there, that is its other operand.
      const bool copies = ops::definition_of(node.op).runs == ops::Runs::copy;
      note(std::span(node.inputs).first(copies ? 1 : node.inputs.size()), reads);
      note(node.outputs, writes);
    }
    return {.reads = {reads.begin(), reads.end()}, .writes = {writes.begin(), writes.end()}};
  }

  // What other streams use lives until they are known to be done with it, and results until the end.
  void end_lives(const plan::Program& program, const Streams& streams, const Storages& storages) {
    for (const plan::Stream& stream : program.streams) {
      if (stream.kind == plan::StreamKind::compute) continue;
      for (const plan::Call& call : stream.calls) {
        for (BufferId id : call.bindings) {
          plan::Buffer& buffer = buffers_[id];
          if (!buffer.persistent()) buffer.last = std::max(buffer.last, streams.busy_until(call.moment));
        }
      }
    }
    for (std::uint32_t index = 0; index < instances_.size(); ++index) {
      if (!storages.all[StorageId{index}].result) continue;
      for (BufferId id : instances_[index]) {
        if (id.valid()) buffers_[id].last = streams.moments() - 1;
      }
    }
  }

  // What every program keeps comes first; behind it each program lays out its own, over the others'.
  void place_buffers() {
    for (const plan::Tier tier : {plan::Tier::device, plan::Tier::host, plan::Tier::disk}) place_buffers(tier);
  }

  void place_buffers(plan::Tier tier) {
    Bytes persistent{0};
    for (plan::Buffer& buffer : buffers_) {
      if (!buffer.persistent() || buffer.tier != tier) continue;
      buffer.offset = persistent;
      persistent += base::round_up(buffer.bytes, plan::alignment_of(tier));
    }
    const bool drives =
        std::any_of(buffers_.begin(), buffers_.end(), [](const plan::Buffer& buffer) { return buffer.tier == plan::Tier::disk; });
    Bytes arena = persistent;
    for (std::int32_t program = 0; program < static_cast<std::int32_t>(rank_class_.programs.size()); ++program) {
      std::vector<Lifetime> lifetimes;
      std::vector<plan::Buffer*> owners;
      for (plan::Buffer& buffer : buffers_) {
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
  std::int32_t first_rank_;
  plan::RankClass rank_class_;
  base::IdVector<BufferId, plan::Buffer> buffers_;  // of the class
  Procedures procedures_;
  std::unordered_map<std::string, BufferId> persistent_;
  std::vector<std::vector<BufferId>> instances_;  // by storage: of each micro-batch, or of each batch
  std::vector<plan::Name> names_;                 // by storage
  Versions versions_;                             // of the weights, in the program in hand
  std::map<std::pair<std::string, std::int32_t>, BufferId> stashes_;
  std::vector<std::unique_ptr<const ProgramWork>> works_;
};

}  // namespace

plan::ProcedureId Procedures::add(plan::Procedure procedure) {
  std::vector<plan::ProcedureId>& alike = alike_[{procedure.instructions.size(), procedure.slots.size()}];
  for (plan::ProcedureId id : alike) {
    if (same_work(all_[id], procedure)) return id;
  }
  alike.push_back(all_.add(std::move(procedure)));
  return alike.back();
}

ClassLowering::ClassLowering(const LoweringInputs& inputs, const RankGraphs& graphs, std::int32_t first_rank)
    : inputs_(inputs), graphs_(graphs) {
  ClassMaker maker(inputs, graphs, first_rank);
  lowered_ = maker.run();
  works_ = maker.take_works();
}

ClassLowering::~ClassLowering() = default;

std::optional<LoweredClass> ClassLowering::at(std::int32_t first_rank) const {
  if (inputs_.rows != nullptr) return std::nullopt;  // what moves rows is made from parts
  if (role_of(inputs_, graphs_.mesh(), first_rank) != lowered_.rank_class.role) return std::nullopt;
  OtherProcedures procedures(lowered_.procedures);
  std::unordered_map<std::string, ops::Part> parts;
  for (const std::unique_ptr<const ProgramWork>& work : works_) {
    const ProgramWork other(work->source, graphs_.graph_at(work->source, first_rank), graphs_.mesh(), inputs_);
    if (!same_calls(*work, other) || !procedures.add(*work, other)) return std::nullopt;
    for (const Storage& storage : other.storages.all) {
      const graph::Value& value = other.graph.values[storage.value];
      if (is_persistent(storage.kind)) parts.try_emplace(value.name, value.part);
    }
  }
  LoweredClass lowered{lowered_.rank_class, procedures.take()};
  name_class(lowered.rank_class, graphs_.mesh(), first_rank);
  for (auto& [buffer, part] : lowered.rank_class.parts) part = parts.at(lowered_.rank_class.buffers[buffer].name);
  return lowered;
}

}  // namespace plimsoll::lowering

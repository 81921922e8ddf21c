#include "lowering/outline.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "lowering/fit.h"
#include "lowering/issue_calls.h"
#include "lowering/layout/issue_order.h"
#include "lowering/layout/memory.h"
#include "lowering/layout/procedures.h"
#include "lowering/layout/storage.h"
#include "lowering/layout/streams.h"
#include "lowering/layout/versions.h"
#include "lowering/passes/block_chain.h"
#include "lowering/rank_graph.h"
#include "lowering/rows.h"
#include "strategy/legality.h"

namespace plimsoll::lowering {

namespace {

using base::Bytes;
using graph::Graph;
using graph::Phase;
using plan::BufferId;
using plan::ProcedureId;
using plan::StreamKind;
using strategy::schedules::Item;

// What places with the same blocks share.
struct Template {
  std::vector<std::int32_t> stages;  // of the place it was made for
  Graph graph;
  Storages storages;
  std::vector<Piece> pieces;
  std::optional<ProcedureInputs> inputs;
  MadeProcedures made;
  std::map<graph::BlockId, ProcedureId> stashes;
};

// What lives when.
class Lives {
 public:
  Lives(const Storages& storages, const Versions& versions) : storages_(storages), versions_(versions), instances_(storages.all.size()) {}

  // The memory behind each slot, which lives from its first moment to its last.
  std::vector<BufferId> bind(const std::vector<StorageId>& slots, const Issue& issue, std::int32_t moment) {
    std::vector<BufferId> bindings;
    bindings.reserve(slots.size());
    for (const StorageId slot : slots)
      bindings.push_back(versions_.is_old(slot, issue) ? put_aside(slot, issue.version, moment) : instance(slot, issue, moment));
    return bindings;
  }

  // Weights as they are, and where they are kept while updates go on: by turns.
  std::vector<BufferId> bind_stash(const std::vector<StorageId>& weights, const Issue& update, std::int32_t moment) {
    std::vector<BufferId> bindings;
    for (const StorageId weight : weights) {
      bindings.push_back(instance(weight, update, moment));
      bindings.push_back(put_aside(weight, update.batch, moment));
    }
    return bindings;
  }

  void add_frame(std::int32_t moment, plan::Tier tier, Bytes bytes) {
    if (bytes.count > 0) lives_.push_back({.kind = plan::BufferKind::frame, .tier = tier, .bytes = bytes, .first = moment, .last = moment});
  }

  std::size_t count() const { return lives_.size(); }

  // What streams beside the computation use lives until they are known to be done, and results until the end.
  void end(const plan::Program& program, const Streams& streams) {
    for (const plan::Stream& stream : program.streams) {
      if (stream.kind == StreamKind::compute) continue;
      for (const plan::Call& call : stream.calls) {
        const std::int32_t until = streams.busy_until(call.moment);
        for (const BufferId id : call.bindings) lives_[id.index].last = std::max(lives_[id.index].last, until);
      }
    }
    for (Life& life : lives_) {
      if (life.result) life.last = streams.moments() - 1;
    }
  }

  // The most bytes of activations on the device at once.
  Bytes most_activations(std::int32_t moments) const {
    std::vector<Lifetime> lifetimes;
    for (const Life& life : lives_) {
      if (life.kind == plan::BufferKind::activation && life.tier == plan::Tier::device)
        lifetimes.push_back({life.bytes, life.first, life.last});
    }
    return most_alive(lifetimes, plan::Tier::device, moments);
  }

  // Of one tier: with gaps, as lowering would lay everything out, or the most that lives at once.
  Bytes arena(plan::Tier tier, std::int32_t moments, bool laid_out) const {
    Bytes persistent{0};
    std::vector<Lifetime> lifetimes;
    for (const Life& life : lives_) {
      if (life.tier != tier) continue;
      if (life.persistent) {
        persistent += base::round_up(life.bytes, plan::alignment_of(tier));
      } else {
        lifetimes.push_back({life.bytes, life.first, life.last});
      }
    }
    if (!laid_out) return persistent + most_alive(lifetimes, tier, moments);
    const bool drives = std::any_of(lives_.begin(), lives_.end(), [](const Life& life) { return life.tier == plan::Tier::disk; });
    return lay_out(lifetimes, tier, persistent, drives).total;
  }

 private:
  struct Life {
    plan::BufferKind kind{};
    plan::Tier tier{};
    Bytes bytes;
    std::int32_t first = 0;
    std::int32_t last = 0;
    bool persistent = false;
    bool result = false;
  };

  static Bytes most_alive(const std::vector<Lifetime>& lifetimes, plan::Tier tier, std::int32_t moments) {
    std::vector<std::int64_t> changes(static_cast<std::size_t>(moments) + 1);
    for (const Lifetime& lifetime : lifetimes) {
      const std::int64_t bytes = base::round_up(lifetime.bytes, plan::alignment_of(tier)).count;
      changes[static_cast<std::size_t>(lifetime.first)] += bytes;
      changes[static_cast<std::size_t>(lifetime.last) + 1] -= bytes;
    }
    std::int64_t alive = 0;
    std::int64_t most = 0;
    for (const std::int64_t change : changes) most = std::max(most, alive += change);
    return {most};
  }

  std::uint32_t add(const Storage& storage, std::int32_t first) {
    const Bytes bytes = std::max(storage.bytes, Bytes{storage.type.bytes()});
    lives_.push_back({.kind = storage.kind, .tier = storage.tier, .bytes = bytes, .first = first});
    return static_cast<std::uint32_t>(lives_.size() - 1);
  }

  // One for the plan, for a batch (of scalars too, though these outlive the program), or for a micro-batch.
  BufferId instance(StorageId slot, const Issue& issue, std::int32_t moment) {
    const Storage& storage = storages_.all[slot];
    const bool of_batch = storage.all_micro_batches || storage.kind == plan::BufferKind::scalars;
    const bool one = is_persistent(storage.kind) && !of_batch;
    std::vector<std::uint32_t>& numbers = instances_[slot.index];
    const auto number = static_cast<std::size_t>(one ? 0 : of_batch ? issue.batch : issue.micro_batch);
    if (number >= numbers.size()) numbers.resize(number + 1, BufferId::kNone);
    if (numbers[number] == BufferId::kNone) {
      numbers[number] = add(storage, storage.kind == plan::BufferKind::input ? 0 : moment);
      lives_.back().persistent = is_persistent(storage.kind);
      lives_.back().result = storage.result;
    }
    lives_[numbers[number]].last = moment;
    return BufferId{numbers[number]};
  }

  BufferId put_aside(StorageId slot, std::int32_t version, std::int32_t moment) {
    const auto [found, fresh] = asides_.try_emplace({slot.index, version});
    if (fresh) found->second = add(storages_.all[slot], moment);
    lives_[found->second].last = moment;
    return BufferId{found->second};
  }

  const Storages& storages_;
  const Versions& versions_;
  std::vector<std::vector<std::uint32_t>> instances_;                       // by storage and batch or micro-batch: in lives_
  std::map<std::pair<std::uint32_t, std::int32_t>, std::uint32_t> asides_;  // by storage and version: in lives_
  std::vector<Life> lives_;
};

// Lifetimes of all classes up to which their arenas are laid out: a second or so.
constexpr std::size_t kFewLives = 20'000;

// Tells what crosses a boundary between two stages from all else: the stage it comes from, the way it goes, and its number.
constexpr std::int64_t kMessagesOfABoundary = 8;

class Outlining {
 public:
  Outlining(const LoweringInputs& inputs, const RecomputeOrder& again)
      : inputs_(inputs), source_(inputs.programs.front()), graphs_(inputs, again) {}

  plan::Plan run() {
    plan_.model = inputs_.model;
    plan_.strategy = strategy::describe(inputs_.strategy);
    plan_.threads = inputs_.threads;
    plan_.mesh = graphs_.mesh();
    for (std::int32_t place = 0; place < plan_.mesh.extent(ops::Axis::pipe); ++place) add_class(place);
    return std::move(plan_);
  }

 private:
  // ---- what places share

  std::string signature_of(std::int32_t place, const std::vector<std::int32_t>& stages) {
    std::string signature = place == 0 || place == plan_.mesh.tied_place() ? "tied" : "";
    const std::vector<std::int32_t>& stage_of_block = graphs_.pipe().stage_of_block;
    for (const std::int32_t stage : stages) {
      signature += '|';
      for (std::uint32_t block = 0; block < stage_of_block.size(); ++block) {
        if (stage_of_block[block] == stage) signature += block_kind(block) + ',';
      }
    }
    return signature;
  }

  // Blocks whose nodes are the same, types included. The first and the last are always their own.
  std::string block_kind(std::uint32_t block) {
    if (kinds_.empty()) {
      kinds_.resize(source_.graph.blocks.size());
      for (const graph::Node& node : source_.graph.nodes) {
        std::string& kind = kinds_[node.block.index];
        kind += std::string(ops::name_of(node.op));
        for (const graph::ValueId id : node.outputs) {
          const base::TensorType& type = source_.graph.values[id].type;
          kind += fmt::format("{}.{};", type.shape.elements(), type.shape[-1]);
        }
      }
      std::map<std::string, std::size_t> known;
      for (std::string& kind : kinds_) kind = std::to_string(known.try_emplace(kind, known.size()).first->second);
    }
    const bool end = block == 0 || block + 1 == kinds_.size();
    return end ? fmt::format("end {}", block) : kinds_[block];
  }

  Template& template_of(std::int32_t place, const std::vector<std::int32_t>& stages) {
    std::unique_ptr<Template>& found = templates_[signature_of(place, stages)];
    if (found == nullptr) {
      found = std::make_unique<Template>();
      found->stages = stages;
      found->graph = graphs_.graph_at(source_, plan_.mesh.first_rank(place), ops::Seat{.members = plan_.mesh.extent(ops::Axis::tensor)});
      found->storages = share_storage(found->graph);
      found->pieces = pieces_of(found->graph, plan_.mesh, inputs_.host_beside);
      found->inputs.emplace(found->graph, found->storages, found->pieces, inputs_.choose, inputs_.threads);
    }
    return *found;
  }

  // ---- messages

  // The same message between this place and its own neighbours. Values go from a stage to the one before or after it.
  plan::Procedure addressed(const plan::Procedure& procedure, std::int32_t stage, Phase phase) const {
    plan::Procedure own = procedure;
    const auto stages = static_cast<std::int32_t>(graphs_.pipe().place_of_stage.size());
    const bool backward = phase == Phase::backward || phase == Phase::backward_weight;
    std::int64_t number = 0;
    for (plan::Instruction& instruction : own.instructions) {
      ops::Message& message = std::get<plan::Message>(instruction).op;
      const std::int32_t other = backward != message.receive ? stage - 1 : stage + 1;
      PLIMSOLL_CHECK(other >= 0 && other < stages, "a message of stage {} leaves the model", stage);
      message.peer = graphs_.pipe().place_of_stage[static_cast<std::size_t>(other)];
      const std::int32_t from = message.receive ? other : stage;
      message.tag = (from * 2 + (backward ? 1 : 0)) * kMessagesOfABoundary + number++;
    }
    return own;
  }

  ProcedureId procedure_of(Template& shared, const Made& made, const Piece& piece, std::int32_t stage) {
    const bool message = piece.stream == StreamKind::send || piece.stream == StreamKind::receive;
    if (!message) return made.procedure;
    const auto [found, fresh] = addressed_.try_emplace({&shared, made.procedure.index, stage});
    if (fresh) {
      plan::Procedure own = addressed(plan_.procedures[made.procedure], stage, piece.phase);
      found->second = plan_.procedures.add(std::move(own));
    }
    return found->second;
  }

  // ---- a place

  // The place's items in terms of the stages that the template was made for.
  static std::vector<Item> translated(std::vector<Item> items, const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to) {
    for (Item& item : items) {
      if (item.stage == strategy::schedules::kNone) continue;
      item.stage = to[static_cast<std::size_t>(std::find(from.begin(), from.end(), item.stage) - from.begin())];
    }
    return items;
  }

  // The stage of this place for which a piece of the template stands.
  static std::int32_t stage_here(const Template& shared, const Piece& piece, const std::vector<std::int32_t>& stages) {
    const auto found = std::find(shared.stages.begin(), shared.stages.end(), shared.graph.blocks[piece.block].stage);
    return found == shared.stages.end() ? 0 : stages[static_cast<std::size_t>(found - shared.stages.begin())];
  }

  // The calls of a place, bound to lifetimes.
  struct Calls {
    Outlining& outlining;
    Template& shared;
    const std::vector<std::int32_t>& stages;
    Lives& lives;
    const Made* wanted = nullptr;
    std::map<std::uint32_t, const std::vector<StorageId>*> slots{};  // by procedure

    plan::Plan& plan() const { return outlining.plan_; }

    void prepare(const Issue& issue) {
      wanted =
          &shared.made.of(*shared.inputs, issue, [&](plan::Procedure procedure) { return plan().procedures.add(std::move(procedure)); });
    }

    plan::Call call(const Issue& issue, std::int32_t moment) {
      const Piece& piece = shared.pieces[issue.piece];
      plan::Call made = call_of(outlining.procedure_of(shared, *wanted, piece, stage_here(shared, piece, stages)), issue, moment);
      slots.try_emplace(made.entry.index, &wanted->slots);
      made.bindings = lives.bind(wanted->slots, issue, moment);
      lives.add_frame(moment, piece.tier, plan().procedures[wanted->procedure].frame);
      return made;
    }

    plan::Call stash(graph::BlockId block, const std::vector<StorageId>& weights, const Issue& update, std::int32_t moment) const {
      const auto [found, fresh] = shared.stashes.try_emplace(block);
      if (fresh) found->second = plan().procedures.add(stash_procedure(shared.graph, shared.storages, block, weights));
      plan::Call made = call_of(found->second, update, moment);
      made.bindings = lives.bind_stash(weights, update, moment);
      return made;
    }

    plan::Call pause(const Issue& issue) const {
      ProcedureId& pause = outlining.pause_;
      if (!pause.valid()) pause = plan().procedures.add({.name = "pause", .slots = {}, .temporaries = {}, .instructions = {}});
      return call_of(pause, issue, 0);
    }

    static plan::Call call_of(ProcedureId procedure, const Issue& issue, std::int32_t moment) {
      return {.entry = {procedure.index},  // entries are numbered as the plan's procedures are
              .moment = moment,
              .micro_batch = issue.micro_batch,
              .label = {},
              .bindings = {},
              .frame = {},
              .waits = {},
              .signals = {}};
    }
  };

  void add_class(std::int32_t place) {
    const std::vector<std::int32_t> stages = graphs_.stages_at(place);
    Template& shared = template_of(place, stages);
    const std::int32_t first_rank = plan_.mesh.first_rank(place);
    const auto places = static_cast<std::size_t>(plan_.mesh.extent(ops::Axis::pipe));
    // Places with degrees of their own are outlined as if each were one rank: such plans are small enough to be made whole.
    plan::RankClass rank_class{.name = places == 1 ? "all" : fmt::format("pipe {}", place),
                               .ranks = plan_.mesh.even() ? plan_.mesh.alike(first_rank) : std::vector{place},
                               .buffers = {},
                               .programs = {}};
    for (const Storage& storage : shared.storages.all)
      rank_class.buffers.edit().add({.name = "", .kind = storage.kind, .tier = storage.tier});
    plan::Program program{
        .name = source_.name, .micro_batches = source_.micro_batches * graphs_.batches(source_), .streams = {}, .cadence = source_.cadence};
    Streams streams(program);
    const std::vector<Item> items = translated(graphs_.items_at(source_, first_rank), stages, shared.stages);
    Versions versions(shared.graph, shared.storages, items);
    Lives lives(shared.storages, versions);
    Calls calls{*this, shared, stages, lives};
    issue_calls(issue_order(shared.graph, shared.pieces, items, source_.micro_batches, graphs_.batches(source_)), shared.pieces, versions,
                streams, calls);
    lives.end(program, streams);
    const bool laid_out = lives.count() * places <= kFewLives;
    for (const plan::Tier tier : {plan::Tier::device, plan::Tier::host, plan::Tier::disk})
      rank_class.arena[static_cast<std::size_t>(tier)] = lives.arena(tier, streams.moments(), laid_out);
    // Stands for all activations, for who limits them.
    plan::Buffer activations{.name = "activations at their most", .kind = plan::BufferKind::activation};
    activations.bytes = lives.most_activations(streams.moments());
    activations.program = 0;
    rank_class.buffers.edit().add(std::move(activations));
    for (plan::Stream& stream : program.streams) {
      for (plan::Call& call : stream.calls) {
        call.bindings = {};
        if (const auto found = calls.slots.find(call.entry.index); found != calls.slots.end()) {
          for (const StorageId slot : *found->second) call.bindings.push_back(BufferId{slot.index});
          calls.slots.erase(found);
        }
      }
    }
    for (std::uint32_t id = 0; id < plan_.procedures.size(); ++id) program.procedures.push_back({id});
    rank_class.programs.push_back(std::move(program));
    plan_.classes.push_back(std::move(rank_class));
  }

  const LoweringInputs& inputs_;
  const ProgramSource& source_;
  RankGraphs graphs_;
  plan::Plan plan_;
  ProcedureId pause_;
  std::vector<std::string> kinds_;  // of blocks
  std::map<std::string, std::unique_ptr<Template>> templates_;
  std::map<std::tuple<const Template*, std::uint32_t, std::int32_t>, ProcedureId> addressed_;  // messages of a stage
};

}  // namespace

plan::Plan outline(const LoweringInputs& inputs) {
  return with_rows_apart(inputs, [](const LoweringInputs& apart) {
    const std::int64_t folded = apart.strategy.tensor * apart.strategy.more_ranks(ops::Shares::tensors);
    return fit_update(apart, folded, [](const LoweringInputs& fitted) {
      return fit_recompute(fitted, [](const LoweringInputs& tried, const RecomputeOrder& again) { return Outlining(tried, again).run(); });
    });
  });
}

}  // namespace plimsoll::lowering

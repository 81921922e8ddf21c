#include "train/stored/snapshot.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "collectives/group.h"
#include "train/stored/kept_states.h"

namespace plimsoll::train {

namespace {

constexpr std::string_view kScalars = "step_scalars";
constexpr std::string_view kPendingScalars = "pending_step_scalars";  // of updates that are a step late

using Index = std::unordered_map<std::string, std::size_t>;     // by buffer name
using Moments = std::unordered_map<std::string, std::int32_t>;  // by buffer name

struct Stored {
  std::string name;    // in the checkpoint
  std::string buffer;  // in the session
  base::TensorType whole;
  std::int64_t place = -1;  // among those that share out the batch, of the rank whose own it is; -1: all have the same
};

// Parameters and their optimizers' state as the graph has them, and what says itself how it is kept as the plan does, wherever it was born.
std::vector<Stored> stored_buffers(const Session& session) {
  const graph::Graph& graph = session.graph();
  std::vector<Stored> stored;
  std::set<std::string_view> of_parameters;
  for (const graph::Parameter& parameter : graph.parameters) {
    const graph::Value& master = graph.values[parameter.master];
    if (!master.state.declared())
      stored.push_back({parameter.stored ? master.name : parameter.name, master.name, master.type});  // the name of a form says which
    for (graph::ValueId state : parameter.states) {
      if (graph.values[state].state.declared()) continue;
      stored.push_back({graph.values[state].name, graph.values[state].name, graph.values[state].type});
      of_parameters.insert(graph.values[state].name);
    }
  }
  for (const graph::Value& value : graph.values) {
    // Histories of largest values, which scale 8-bit operands.
    const bool scalars = value.type == ops::step_scalars_type();
    if (value.role == graph::Role::state && !value.state.declared() && !scalars && !of_parameters.contains(value.name))
      stored.push_back({value.name, value.name, value.type});
  }
  for (const KeptState& state : kept_states(session.plan())) {
    if (!state.state.is_private()) stored.push_back({state.name, state.name, state.whole});
    for (std::int64_t place = 0; state.state.is_private() && place < state.ranks; ++place)
      stored.push_back({name_of_rank(state.name, place), state.name, state.whole, place});
  }
  const graph::Value& scalars = graph.values[graph.scalars];
  stored.push_back({std::string(kScalars), scalars.name, scalars.type});
  if (graph.pending.valid()) {
    const graph::Value& pending = graph.values[graph.pending];
    stored.push_back({std::string(kPendingScalars), pending.name, pending.type});
  }
  return stored;
}

std::vector<std::int64_t> dims_of(const base::Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

// visit(call, buffer's name) for everything that a program writes.
template <typename Visit>
void for_each_write(Session& session, const plan::Program& program, Visit&& visit) {
  const plan::Plan& plan = session.plan();
  const plan::RankClass& rank_class = session.executor().rank_class();
  for (const plan::Stream& stream : program.streams) {
    for (const plan::Call& call : stream.calls) {
      const plan::Procedure& procedure = plan.procedures[program.procedure_of(call)];
      for (std::size_t slot = 0; slot < procedure.slots.size(); ++slot) {
        if (procedure.slots[slot].access != plan::Access::read) visit(call, rank_class.buffers[call.bindings[slot]].name);
      }
    }
  }
}

void order_by_first_write(Session& session, std::vector<HeldPiece>& pieces) {
  Moments first_write;
  const plan::Program* step = plan::find_program(session.executor().rank_class(), kTrain);
  if (step == nullptr) return;
  for_each_write(session, *step, [&](const plan::Call& call, const std::string& buffer) {
    std::int32_t& first = first_write.try_emplace(buffer, call.moment).first->second;
    first = std::min(first, call.moment);
  });
  const auto moment = [&](const HeldPiece& piece) {
    const auto found = first_write.find(piece.buffer);
    return found == first_write.end() ? std::numeric_limits<std::int32_t>::max() : found->second;
  };
  std::stable_sort(pieces.begin(), pieces.end(), [&](const HeldPiece& a, const HeldPiece& b) { return moment(a) < moment(b); });
}

// Ranks at one place of the pipe axis that hold the same of a tensor write a share of it each, but for axes of which the first rank writes
// all. Of places that hold the same, the first writes it.
struct Copies {
  std::int64_t members = 1;
  std::int64_t place = 0;
  bool writes = true;
};

bool holds(const plan::RankClass& rank_class, const std::string& buffer) {
  const std::string first_tile = tile_buffer(buffer, 0);
  return std::any_of(rank_class.buffers.begin(), rank_class.buffers.end(),
                     [&](const plan::Buffer& known) { return known.persistent() && (known.name == buffer || known.name == first_tile); });
}

Copies copies_of(const Session& session, const HeldPiece& piece) {
  const plan::Mesh& mesh = session.plan().mesh;
  const ops::Part part = session.buffers().part(piece.buffer);
  Copies copies;
  const auto spread_over = [&](std::int64_t members, std::int64_t place) {
    copies.place = copies.place * members + place;
    copies.members *= members;
  };
  const auto over_axis = [&](const ops::Axis& axis) { spread_over(mesh.extent(axis, session.rank()), mesh.place(axis, session.rank())); };
  // A tensor rank that neither computes with a weight nor trains it does not hold it.
  const auto over_holders = [&](const ops::Axis& axis) {
    std::int64_t members = 0;
    std::int64_t place = 0;
    for (const std::int32_t rank : mesh.group(axis, session.rank())) {
      if (rank == session.rank()) place = members;
      if (holds(plan::class_of(session.plan(), rank), piece.buffer)) ++members;
    }
    spread_over(members, place);
  };
  const bool own = session.buffers().buffer(piece.buffer).state.is_private();
  for (const plan::MeshAxis& entry : mesh.table()) {
    const ops::Axis& axis = entry.row.axis;
    if (entry.row.part_of.valid() || entry.row.shares == ops::Shares::blocks) continue;
    if (entry.row.one_writes) {
      copies.writes = copies.writes && mesh.place(axis, session.rank()) == 0;
    } else if (entry.row.shares == ops::Shares::tensors) {
      if (part.dim < 0) over_holders(axis);
    } else if (entry.row.shares == ops::Shares::nothing || !own) {
      over_axis(axis == ops::Axis::data && part.shard > 0 ? ops::Axis::data_outer : axis);
    }
  }
  if (part.dim >= 0 && ops::is_tail(part, piece.begin / base::size_of(piece.whole.dtype))) over_holders(ops::Axis::tensor_inner);
  return copies;
}

}  // namespace

// Classes are in the order of their first ranks.
std::int32_t first_holder(const Session& session, const std::string& buffer) {
  for (const plan::RankClass& rank_class : session.plan().classes) {
    if (holds(rank_class, buffer)) return rank_class.ranks.front();
  }
  PLIMSOLL_CHECK(false, "no rank has {}", buffer);
}

std::vector<HeldPiece> held_pieces(Session& session, plan::Access access) {
  session.settle();
  const Buffers& buffers = session.buffers();
  std::vector<HeldPiece> pieces;
  for (const Stored& stored : stored_buffers(session)) {
    const std::size_t before = pieces.size();
    base::TensorType whole = stored.whole;
    const bool mine = stored.place < 0 || stored.place == session.plan().mesh.place(ops::Shares::batch, session.rank());
    for (const std::string& buffer : mine ? buffers.holding(stored.buffer) : std::vector<std::string>{}) {
      const ops::Part part = buffers.part(buffer);
      whole = {buffers.buffer(buffer).type.dtype, part.whole};
      const std::int64_t size = base::size_of(whole.dtype);
      std::byte* data = buffers.on_disk(buffer) ? nullptr : buffers.bytes(buffer, access);
      ops::for_each_run(part, buffers.data_place(), [&](std::int64_t first, std::int64_t held, std::int64_t count) {
        HeldPiece piece{stored.name, buffer, whole, first * size, count * size, {}, held * size};
        if (data != nullptr) piece.data = {data + held * size, static_cast<std::size_t>(count * size)};
        pieces.push_back(std::move(piece));
      });
    }
    // A rank that has nothing of a tensor still knows of it.
    if (pieces.size() == before) pieces.push_back({stored.name, stored.buffer, whole});
  }
  return pieces;
}

base::Bytes checkpoint_bytes(const Session& session) {
  base::Bytes bytes;
  for (const Stored& stored : stored_buffers(session)) bytes.count += stored.whole.bytes();
  return bytes;
}

std::vector<HeldPiece> own_pieces(Session& session) {
  std::vector<HeldPiece> pieces = held_pieces(session, plan::Access::read);
  const plan::Mesh& mesh = session.plan().mesh;
  const auto elsewhere = [&](const HeldPiece& piece) {
    return mesh.place(ops::Axis::pipe, first_holder(session, piece.buffer)) != mesh.place(ops::Axis::pipe, session.rank());
  };
  std::erase_if(pieces, [&](const HeldPiece& piece) { return piece.bytes == 0 || elsewhere(piece); });
  for (HeldPiece& piece : pieces) {
    const Copies alike = copies_of(session, piece);
    if (!alike.writes) {
      piece.bytes = 0;
      continue;
    }
    const std::int64_t size = base::size_of(piece.whole.dtype);
    const collectives::Share share =
        collectives::share_of(piece.bytes / size, static_cast<int>(alike.members), static_cast<int>(alike.place));
    piece.begin += share.first * size;
    piece.held += share.first * size;
    piece.bytes = share.count * size;
    if (!piece.data.empty())
      piece.data = piece.data.subspan(static_cast<std::size_t>(share.first * size), static_cast<std::size_t>(piece.bytes));
  }
  std::erase_if(pieces, [](const HeldPiece& piece) { return piece.bytes == 0; });
  return pieces;
}

std::vector<checkpoint::TensorTarget> targets_of(const Session& session, const std::vector<HeldPiece>& pieces) {
  std::vector<checkpoint::TensorTarget> targets;
  for (const HeldPiece& piece : pieces) {
    targets.push_back(
        {.name = piece.name, .dtype = piece.whole.dtype, .shape = dims_of(piece.whole.shape), .data = piece.data, .begin = piece.begin});
    if (piece.bytes == 0 || !piece.data.empty()) continue;
    targets.back().elsewhere = {piece.bytes,
                                [&buffers = session.buffers(), name = piece.buffer, held = piece.held](
                                    std::int64_t first, std::span<const std::byte> data) { buffers.write(name, held + first, data); }};
  }
  return targets;
}

std::vector<checkpoint::TensorSource> sources_of(const Session& session, const std::vector<HeldPiece>& pieces) {
  std::vector<checkpoint::TensorSource> sources;
  for (const HeldPiece& piece : pieces) {
    sources.push_back(
        {.name = piece.name, .dtype = piece.whole.dtype, .shape = dims_of(piece.whole.shape), .data = piece.data, .begin = piece.begin});
    if (piece.bytes == 0 || !piece.data.empty()) continue;
    sources.back().elsewhere = {piece.bytes, [&buffers = session.buffers(), name = piece.buffer, held = piece.held](
                                                 std::int64_t first, std::span<std::byte> out) { buffers.read(name, held + first, out); }};
  }
  return sources;
}

void look_again(Session& session, const Snapshot& snapshot) {
  session.settle();
  for (const std::vector<HeldPiece>* pieces : {&snapshot.pieces, &snapshot.scalars}) {
    for (const HeldPiece& piece : *pieces) {
      if (!piece.data.empty()) session.buffers().bytes(piece.buffer, plan::Access::read);
    }
  }
}

Snapshot snapshot_of(Session& session) {
  Snapshot snapshot;
  snapshot.pieces = own_pieces(session);
  const auto is_scalars = [](const HeldPiece& piece) { return piece.name == kScalars; };
  std::copy_if(snapshot.pieces.begin(), snapshot.pieces.end(), std::back_inserter(snapshot.scalars), is_scalars);
  std::erase_if(snapshot.pieces, is_scalars);
  order_by_first_write(session, snapshot.pieces);

  Index end;  // after the last piece in a buffer
  for (std::size_t index = 0; index < snapshot.pieces.size(); ++index) end[snapshot.pieces[index].buffer] = index + 1;
  const auto in_host_memory = [&](const std::string& buffer) { return session.buffers().buffer(buffer).tier == plan::Tier::host; };
  for (const plan::Program& program : session.executor().rank_class().programs) {
    const bool carries = program.name == kTrain && session.carries_updates();
    for_each_write(session, program, [&](const plan::Call& call, const std::string& buffer) {
      const auto found = end.find(buffer);
      if (found == end.end()) return;
      if (carries && in_host_memory(buffer)) snapshot.of_waiting_update.insert(&call);
      std::size_t& needed = snapshot.needed_before[&call];
      needed = std::max(needed, found->second);
    });
  }
  return snapshot;
}

}  // namespace plimsoll::train

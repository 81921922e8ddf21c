#include "train/checkpoints.h"

#include <chrono>
#include <map>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/retention.h"
#include "checkpoint/save.h"
#include "config/config.h"
#include "train/initialise.h"
#include "train/setup.h"
#include "train/together.h"

namespace plimsoll::train {

namespace {

using base::Json;

constexpr std::string_view kScalars = "step_scalars";

// What a checkpoint holds: everything that outlives a step and cannot be made again.
struct Stored {
  std::string name;    // in the checkpoint
  std::string buffer;  // in the session
};

std::vector<Stored> stored_buffers(const Session& session) {
  const graph::Graph& graph = session.graph();
  std::vector<Stored> stored;
  for (const graph::Parameter& parameter : graph.parameters) {
    stored.push_back({parameter.name, graph.values[parameter.master].name});
    for (graph::ValueId state : parameter.states) stored.push_back({graph.values[state].name, graph.values[state].name});
  }
  stored.push_back({std::string(kScalars), graph.values[graph.scalars].name});
  return stored;
}

std::vector<std::int64_t> dims_of(const base::Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

// The elements [begin, begin + data) of a whole tensor that this rank has.
struct HeldPiece {
  std::string name;
  base::TensorType whole;
  std::int64_t begin = 0;  // bytes
  std::span<std::byte> data;
};

std::vector<HeldPiece> held_pieces(const Session& session) {
  const Buffers& buffers = session.buffers();
  std::vector<HeldPiece> pieces;
  for (const Stored& stored : stored_buffers(session)) {
    const ops::Part part = buffers.part(stored.buffer);
    const base::TensorType whole{buffers.buffer(stored.buffer).type.dtype, part.whole};
    const std::int64_t size = base::size_of(whole.dtype);
    std::byte* data = buffers.bytes(stored.buffer);
    const std::size_t before = pieces.size();
    ops::for_each_run(part, buffers.data_place(), [&](std::int64_t first, std::int64_t held, std::int64_t count) {
      pieces.push_back({stored.name, whole, first * size, {data + held * size, static_cast<std::size_t>(count * size)}});
    });
    // A rank that has nothing of a tensor still knows of it.
    if (pieces.size() == before) pieces.push_back({stored.name, whole, 0, {}});
  }
  return pieces;
}

// What this rank writes: of a shard all, of what several ranks hold alike one share each.
std::vector<HeldPiece> own_pieces(const Session& session) {
  const Buffers& buffers = session.buffers();
  const plan::Mesh& mesh = session.plan().mesh;
  std::map<std::string, bool> shared;
  for (const Stored& stored : stored_buffers(session)) shared[stored.name] = buffers.part(stored.buffer).shard == 0;
  std::vector<HeldPiece> pieces = held_pieces(session);
  if (mesh.data == 1) return pieces;
  for (HeldPiece& piece : pieces) {
    if (!shared.at(piece.name)) continue;
    const auto size = static_cast<std::size_t>(base::size_of(piece.whole.dtype));
    const collectives::Share share =
        collectives::share_of(static_cast<std::int64_t>(piece.data.size() / size), mesh.data, static_cast<int>(buffers.data_place()));
    piece.begin += share.first * static_cast<std::int64_t>(size);
    piece.data = piece.data.subspan(static_cast<std::size_t>(share.first) * size, static_cast<std::size_t>(share.count) * size);
  }
  std::erase_if(pieces, [](const HeldPiece& piece) { return piece.data.empty(); });
  return pieces;
}

std::vector<checkpoint::TensorTarget> targets_of(const Session& session) {
  std::vector<checkpoint::TensorTarget> targets;
  for (const HeldPiece& piece : held_pieces(session)) {
    targets.push_back(
        {.name = piece.name, .dtype = piece.whole.dtype, .shape = dims_of(piece.whole.shape), .data = piece.data, .begin = piece.begin});
  }
  return targets;
}

std::vector<checkpoint::TensorSource> sources_of(const Session& session) {
  std::vector<checkpoint::TensorSource> sources;
  for (const HeldPiece& piece : own_pieces(session)) {
    sources.push_back(
        {.name = piece.name, .dtype = piece.whole.dtype, .shape = dims_of(piece.whole.shape), .data = piece.data, .begin = piece.begin});
  }
  return sources;
}

// Several ranks write one checkpoint: each its part, the first the manifest of all parts.
checkpoint::SaveResult save_together(io::FileSystem& file_system, const io::Path& folder, const checkpoint::SaveRequest& request,
                                     Session& session) {
  collectives::Group* world = session.world();
  const bool first = world->rank() == 0;
  checkpoint::SaveResult result;
  try {
    together(world, [&] {
      if (first) checkpoint::begin(file_system, folder, request.step);
    });
    checkpoint::Part part;
    together(world, [&] { part = checkpoint::write_part(file_system, folder, request, world->rank(), sources_of(session)); });
    const std::vector<std::string> texts = tell_all(world, base::write_json(checkpoint::to_json(part)));
    together(world, [&] {
      if (!first) return;
      std::vector<checkpoint::Part> parts;
      for (const std::string& text : texts) parts.push_back(checkpoint::part_from_json(base::parse_json(text, "part of a checkpoint")));
      result = checkpoint::commit(file_system, folder, request, parts);
    });
  } catch (const base::Error&) {
    if (first) checkpoint::abandon(file_system, folder, request.step);
    throw;
  }
  return result;
}

// A run continues only from what was trained with the same model, seed, optimizer and precision; steps, batch and
// learning rate may be changed under way.
checkpoint::Identity identity_of(const config::Run& run) {
  const Json settings = config::to_json(run);
  const std::string fixed = base::write_json(settings.at("model")) + base::write_json(settings.at("seed")) +
                            base::write_json(settings.at("precision")) + base::write_json(settings.at("optimizer").at("type"));
  return {.run = fmt::format("{} (seed {})", describe(run).substr(0, describe(run).find(" parameters")), run.seed),
          .config = fmt::format("{:016x}", base::hash_name(fixed))};
}

}  // namespace

Checkpoints::Checkpoints(io::FileSystem& file_system, const config::Run& run, std::string folder)
    : file_system_(file_system), identity_(identity_of(run)), keep_(run.checkpoint.keep), folder_(std::move(folder)) {}

Resumed Checkpoints::resume(Trainer& trainer) {
  Session& session = trainer.session();
  collectives::Group* world = session.world();
  Resumed resumed;
  checkpoint::Search search;
  if (world == nullptr) {
    checkpoint::remove_debris(file_system_, folder_);
    search = checkpoint::load_newest(file_system_, folder_, identity_, [&](const checkpoint::Manifest&) { return targets_of(session); });
  } else {
    search = load_together(session);
  }
  resumed.problems = search.problems;
  if (!search.found) return resumed;
  session.refresh_weights();
  trainer.progress() = {.steps_done = search.found->manifest.step, .cursor = search.found->manifest.state.at("cursor").as_integer()};
  resumed.from = search.found->path.string();
  resumed.steps_done = search.found->manifest.step;
  return resumed;
}

// One rank reads and sums everything and says which checkpoint it is, so that all continue from the same; then each reads
// what it holds.
checkpoint::Search Checkpoints::load_together(Session& session) {
  collectives::Group* world = session.world();
  checkpoint::Search search;
  std::int64_t step = -1;
  together(world, [&] {
    if (world->rank() != 0) return;
    checkpoint::remove_debris(file_system_, folder_);
    search = checkpoint::newest_valid(file_system_, folder_, identity_);
    if (search.found) step = search.found->manifest.step;
  });
  step = tell_all(world, step)[0];
  if (step < 0) return search;
  together(world, [&] {
    if (!search.found) search.found = checkpoint::open(file_system_, folder_ + "/" + checkpoint::step_name(step));
    checkpoint::load(file_system_, *search.found, targets_of(session));
  });
  return search;
}

observe::CheckpointSaved Checkpoints::save(Trainer& trainer) {
  const auto start = std::chrono::steady_clock::now();
  Session& session = trainer.session();
  checkpoint::SaveRequest request{.identity = identity_, .step = trainer.progress().steps_done};
  request.state = Json::object({{"cursor", trainer.progress().cursor}});
  request.keep = std::max<std::int64_t>(2, keep_);
  const checkpoint::SaveResult result = session.world() == nullptr ? checkpoint::save(file_system_, folder_, request, sources_of(session))
                                                                   : save_together(file_system_, folder_, request, session);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {.step = request.step, .path = result.path.string(), .seconds = seconds};
}

void Checkpoints::forget() {
  checkpoint::remove_debris(file_system_, folder_);
  for (std::int64_t step : checkpoint::list_steps(file_system_, folder_)) {
    checkpoint::discard(file_system_, folder_ + "/" + checkpoint::step_name(step));
  }
}

}  // namespace plimsoll::train

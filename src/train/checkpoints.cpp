#include "train/checkpoints.h"

#include <chrono>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/retention.h"
#include "checkpoint/save.h"
#include "config/config.h"
#include "train/initialise.h"
#include "train/setup.h"

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

std::span<std::byte> bytes_of(const Session& session, const std::string& buffer) {
  return {session.buffers().bytes(buffer), static_cast<std::size_t>(session.buffers().buffer(buffer).type.bytes())};
}

std::vector<checkpoint::TensorTarget> targets_of(const Session& session) {
  std::vector<checkpoint::TensorTarget> targets;
  for (const Stored& stored : stored_buffers(session)) {
    const base::TensorType& type = session.buffers().buffer(stored.buffer).type;
    targets.push_back({.name = stored.name, .dtype = type.dtype, .shape = dims_of(type.shape), .data = bytes_of(session, stored.buffer)});
  }
  return targets;
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
  checkpoint::remove_debris(file_system_, folder_);
  const checkpoint::Search search =
      checkpoint::load_newest(file_system_, folder_, identity_, [&](const checkpoint::Manifest&) { return targets_of(trainer.session()); });
  Resumed resumed;
  resumed.problems = search.problems;
  if (!search.found) return resumed;
  trainer.session().refresh_weights();
  trainer.progress() = {.steps_done = search.found->manifest.step, .cursor = search.found->manifest.state.at("cursor").as_integer()};
  resumed.from = search.found->path.string();
  resumed.steps_done = search.found->manifest.step;
  return resumed;
}

observe::CheckpointSaved Checkpoints::save(Trainer& trainer) {
  const auto start = std::chrono::steady_clock::now();
  Session& session = trainer.session();
  std::vector<checkpoint::TensorSource> sources;
  for (const Stored& stored : stored_buffers(session)) {
    const base::TensorType& type = session.buffers().buffer(stored.buffer).type;
    sources.push_back({.name = stored.name, .dtype = type.dtype, .shape = dims_of(type.shape), .data = bytes_of(session, stored.buffer)});
  }
  checkpoint::SaveRequest request{.identity = identity_, .step = trainer.progress().steps_done};
  request.state = Json::object({{"cursor", trainer.progress().cursor}});
  request.keep = std::max<std::int64_t>(2, keep_);
  const checkpoint::SaveResult result = checkpoint::save(file_system_, folder_, request, sources);
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

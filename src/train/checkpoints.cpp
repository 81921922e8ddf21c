#include "train/checkpoints.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/retention.h"
#include "checkpoint/save.h"
#include "config/choices.h"
#include "config/config.h"
#include "io/io_error.h"
#include "observe/clock.h"
#include "train/session/initialise.h"
#include "train/session/together.h"
#include "train/setup/setup.h"
#include "train/stored/kept_states.h"

namespace plimsoll::train {

namespace {

using base::Json;

// Runs `work`, and notes whether it found the disk full: what travels between ranks is the message alone.
void note_full(bool& full, const std::function<void()>& work) {
  try {
    work();
  } catch (const io::IoError& error) {
    full = error.disk_full();
    throw;
  }
}

// Several ranks write one checkpoint: each its part, the first the manifest of all parts.
checkpoint::SaveResult save_together(io::FileSystem& file_system, const io::Path& folder, const checkpoint::SaveRequest& request,
                                     Session& session, bool& full) {
  collectives::Group* world = session.world();
  const bool first = world->rank() == 0;
  checkpoint::SaveResult result;
  try {
    together(world, [&] {
      if (first) note_full(full, [&] { checkpoint::begin(file_system, folder, request.step); });
    });
    checkpoint::Part part;
    together(world, [&] {
      note_full(full, [&] {
        part = checkpoint::write_part(file_system, folder, request, world->rank(), sources_of(session, own_pieces(session)));
      });
    });
    const std::vector<std::string> texts = tell_all(world, base::write_json(checkpoint::to_json(part)));
    together(world, [&] {
      if (!first) return;
      std::vector<checkpoint::Part> parts;
      for (const std::string& text : texts) parts.push_back(checkpoint::part_from_json(base::parse_json(text, "part of a checkpoint")));
      note_full(full, [&] { result = checkpoint::commit(file_system, folder, request, parts); });
    });
  } catch (const base::Error&) {
    if (first) checkpoint::abandon(file_system, folder, request.step);
    throw;
  }
  return result;
}

// How optimizer state and frozen weights are stored, where that is not as they are computed with. Split masters are whole where the
// optimizer is elsewhere than the weights.
std::string state_forms_of(const config::Run& run) {
  const strategy::Offload& offload = run.strategy.offload;
  const bool apart = offload.optimizer.anything() && offload.optimizer != offload.params;
  const bool whole = run.optimizer.master == model::Master::split && apart;
  std::string text;
  if (run.optimizer.master != model::Master::f32 && run.precision != model::Precision::f32 && !whole)
    text += fmt::format(", optimizer.master {}", config::choice_name(run.optimizer.master));
  if (run.optimizer.moments != model::Moments::f32)
    text += fmt::format(", optimizer.moments {}", config::choice_name(run.optimizer.moments));
  if (run.freeze_as != nullptr) text += fmt::format(", freeze_as {}", run.freeze_as->name);
  return text;
}

// A run continues only from what was trained with the same model, seed, optimizer and precision; steps, batch and
// learning rate may be changed under way.
checkpoint::Identity identity_of(const config::Run& run) {
  const Json settings = config::to_json(run);
  std::string model = base::write_json(settings.at("model"));
  // A setting that came later does not make another run of an older one, which had it off.
  constexpr std::string_view kLater = R"("out_bias":false,)";
  if (const std::size_t at = model.find(kLater); at != std::string::npos) model.erase(at, kLater.size());
  const std::string fixed = model + base::write_json(settings.at("seed")) + base::write_json(settings.at("precision")) +
                            base::write_json(settings.at("optimizer").at("type"));
  return {.run = fmt::format("{} (seed {}){}", describe(run).substr(0, describe(run).find(" parameters")), run.seed, state_forms_of(run)),
          .config = fmt::format("{:016x}", base::hash_name(fixed))};
}

// What the samples are made of: a run may go on with others, but not unnoticed.
std::string data_of(const config::Run& run) {
  return fmt::format("{} in sequences of {}", base::write_json(config::to_json(run).at("data").at("train")), run.batch.sequence);
}

}  // namespace

Checkpoints::Checkpoints(io::FileSystem& file_system, const config::Run& run, std::string folder)
    : file_system_(file_system),
      identity_(identity_of(run)),
      data_(data_of(run)),
      settings_(run.checkpoint),
      folder_(std::move(folder)),
      background_(file_system, folder_) {}

Checkpoints::~Checkpoints() {
  if (guarded_ != nullptr) guarded_->set_before_call({});
}

Resumed Checkpoints::resume(Trainer& trainer) {
  Session& session = trainer.session();
  collectives::Group* world = session.world();
  Resumed resumed;
  checkpoint::Search search;
  if (world == nullptr) {
    checkpoint::remove_debris(file_system_, folder_);
    search = checkpoint::load_newest(file_system_, folder_, identity_,
                                     [&](const checkpoint::Checkpoint& found) { load_held(file_system_, found, session); });
  } else {
    search = load_together(session);
  }
  resumed.problems = search.problems;
  if (!search.found) return resumed;
  session.refresh_weights();
  trainer.progress() = {.steps_done = search.found->manifest.step, .cursor = search.found->manifest.state.at("cursor").as_integer()};
  resumed.from = search.found->path.string();
  resumed.steps_done = search.found->manifest.step;
  const Json* data = search.found->manifest.state.find("data");
  const Json* samples = search.found->manifest.state.find("samples");
  if (data != nullptr && data->as_string() != data_) {
    resumed.other_data = data->as_string();
  } else if (samples != nullptr && samples->as_string() != trainer.data_digest()) {
    resumed.other_data = fmt::format("{}, {}", data_, samples->as_string());
  }
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
    load_held(file_system_, *search.found, session);
  });
  return search;
}

// How many checkpoints more than now there will be at most, where `keep` are kept: one is written before the oldest goes.
std::int64_t Checkpoints::most_to_come(std::int64_t steps_done, std::int64_t steps, std::int64_t keep) const {
  if (steps_done >= steps) return 0;
  const std::int64_t every = settings_.every;
  const std::int64_t saves = every == 0 ? 1 : steps / every - steps_done / every + (steps % every == 0 ? 0 : 1);
  const auto there = static_cast<std::int64_t>(checkpoint::list_steps(file_system_, folder_).size());
  return std::min(saves, keep + 1 - std::min(there, keep));
}

std::string Checkpoints::prepare(Trainer& trainer, std::int64_t steps) {
  const collectives::Group* world = trainer.session().world();
  std::string words;
  together(trainer.session().world(), [&] {
    if (world != nullptr && world->rank() != 0) return;
    const auto there = file_system_.status(folder_);
    if (there && there->kind != io::EntryKind::directory)
      base::bad_input("'{}' is not a folder, but checkpoints are to be saved there; move it away, or give the run another folder (\"out\")",
                      folder_);
    const std::int64_t done = trainer.progress().steps_done;
    const std::int64_t copies = most_to_come(done, steps, settings_.keep);
    if (copies == 0) return;
    checkpoint::begin(file_system_, folder_, done + 1);  // whether things can be made there is found out by making one
    checkpoint::abandon(file_system_, folder_, done + 1);
    const base::Bytes each = checkpoint_bytes(trainer.session());
    base::Bytes free = file_system_.free_space(folder_);
    const auto fits = [&](std::int64_t count) { return free.count >= (each * count + checkpoint::kSpareRoom).count; };
    if (fits(copies)) return;
    if (done > 0) {  // the one that the run goes on from was read in full, so those that the next save would remove may go before it
      checkpoint::remove_old(file_system_, folder_, done, settings_.keep);
      free = file_system_.free_space(folder_);
      if (fits(copies)) return;
    }
    words = fmt::format(
        "checkpoints need {} more in '{}' ({} of {} each: \"checkpoint.keep\" is {}, and one is written before the oldest goes), where {} "
        "is free",
        base::to_string(each * copies + checkpoint::kSpareRoom), folder_, copies, base::to_string(each), settings_.keep,
        base::to_string(free));
    // Two and the one being written are what a run cannot do without; that there will be no room for more is told, and met as it comes.
    if (settings_.on_full_disk == config::OnFullDisk::stop && !fits(most_to_come(done, steps, checkpoint::kFewestKept)))
      base::not_legal("{}; make room, or give the run another folder (\"out\")", words);
  });
  return words;
}

checkpoint::SaveRequest Checkpoints::request_of(Trainer& trainer) {
  checkpoint::SaveRequest request{.identity = identity_, .step = trainer.progress().steps_done};
  request.state = Json::object({{"cursor", trainer.progress().cursor}, {"data", data_}, {"samples", trainer.data_digest()}});
  request.keep = settings_.keep;
  step_ = request.step;
  began_ = observe::seconds_now();
  stalled_ = 0.0;
  return request;
}

void Checkpoints::tell(const SaveContext& context, const checkpoint::SaveResult& result) const {
  for (const std::string& note : result.notes) context.observer.on(observe::Notice{observe::Notice::Level::warning, note});
  context.observer.on(observe::CheckpointSaved{
      .step = step_, .path = result.path.string(), .seconds = std::max(result.seconds, stalled_.load()), .stalled = stalled_});
}

// Waits a while on a full disk, if that is the policy. False: do not try again. All ranks come to the same answer.
bool Checkpoints::wait_for_room(Trainer& trainer, const SaveContext& context, bool full, std::string_view problem) const {
  collectives::Group* world = trainer.session().world();
  const auto anybody = [&](bool mine) {
    const std::vector<std::int64_t> everybodys = tell_all(world, mine ? 1 : 0);
    return std::any_of(everybodys.begin(), everybodys.end(), [](std::int64_t theirs) { return theirs != 0; });
  };
  if (settings_.on_full_disk != config::OnFullDisk::retry || !anybody(full) || anybody(context.stop_wanted.load())) return false;
  context.observer.on(observe::Notice{
      observe::Notice::Level::warning,
      fmt::format("{}; the checkpoints before this one are kept. Training pauses and tries again in {} s: make room, or stop the run",
                  problem, settings_.retry_seconds)});
  const double until = observe::seconds_now() + settings_.retry_seconds;
  while (observe::seconds_now() < until && !context.stop_wanted.load()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return !anybody(context.stop_wanted.load());
}

void Checkpoints::save_now(Trainer& trainer, const SaveContext& context) {
  Session& session = trainer.session();
  for (;;) {
    const checkpoint::SaveRequest request = request_of(trainer);
    const double start = observe::seconds_now();
    bool full = false;
    try {
      together(session.world(), [&] {
        if (context.make_durable) note_full(full, context.make_durable);
      });
      checkpoint::SaveResult result;
      if (session.world() == nullptr) {
        note_full(full, [&] { result = checkpoint::save(file_system_, folder_, request, sources_of(session, own_pieces(session))); });
      } else {
        result = save_together(file_system_, folder_, request, session, full);
      }
      stalled_ = result.seconds = observe::seconds_now() - start;
      return tell(context, result);
    } catch (const base::Error& error) {
      if (!wait_for_room(trainer, context, full, error.what())) throw;
    }
  }
}

void Checkpoints::start(Trainer& trainer, const SaveContext& context, bool& full) {
  Session& session = trainer.session();
  collectives::Group* world = session.world();
  if (!snapshot_) snapshot_ = snapshot_of(session);
  look_again(session, *snapshot_);
  request_ = request_of(trainer);
  std::vector<HeldPiece> pieces = snapshot_->pieces;
  scalars_.clear();
  for (const HeldPiece& piece : snapshot_->scalars) scalars_.insert(scalars_.end(), piece.data.begin(), piece.data.end());
  std::span<std::byte> copied = scalars_;
  for (HeldPiece piece : snapshot_->scalars) {
    piece.data = copied.first(piece.data.size());
    copied = copied.subspan(piece.data.size());
    pieces.push_back(std::move(piece));
  }
  if (world != nullptr) {
    together(world, [&] {
      if (world->rank() == 0) note_full(full, [&] { checkpoint::begin(file_system_, folder_, request_.step); });
    });
  }
  guarded_ = &session.executor();
  guarded_->set_before_call([this, &session, &stop_wanted = context.stop_wanted](const plan::Call& call) {
    if (!session.update_waits() && snapshot_->of_waiting_update.contains(&call)) return;
    const auto needed = snapshot_->needed_before.find(&call);
    if (needed == snapshot_->needed_before.end()) return;
    const double wait = observe::seconds_now();
    background_.wait_until_read(needed->second, &stop_wanted);
    stalled_ += observe::seconds_now() - wait;
  });
  stage_ = world == nullptr ? Stage::whole : Stage::parts;
  if (world == nullptr) {
    background_.start(request_, sources_of(session, pieces), context.make_durable);
  } else {
    background_.start(request_, [this, sources = sources_of(session, pieces), writer = world->rank(),
                                 prepare = context.make_durable](const checkpoint::SaveRequest& request) {
      if (prepare) prepare();
      part_ = checkpoint::write_part(file_system_, folder_, request, writer, sources);
      return checkpoint::SaveResult{};
    });
  }
  stalled_ += observe::seconds_now() - began_;
}

// Whether this rank's share of the stage has ended; throws when it failed.
bool Checkpoints::look(checkpoint::BackgroundSave::Wait wait) {
  if (!background_.in_flight()) return true;
  auto result = background_.collect(wait);
  if (result) result_ = std::move(*result);
  return result.has_value();
}

void Checkpoints::begin_commit(collectives::Group* world) {
  guarded_->set_before_call({});
  stage_ = Stage::commit;
  result_ = {};
  std::vector<std::string> texts = tell_all(world, base::write_json(checkpoint::to_json(part_)));
  if (world->rank() != 0) return;
  background_.start(request_, [this, texts = std::move(texts)](const checkpoint::SaveRequest& request) {
    std::vector<checkpoint::Part> parts;
    for (const std::string& text : texts) parts.push_back(checkpoint::part_from_json(base::parse_json(text, "part of a checkpoint")));
    return checkpoint::commit(file_system_, folder_, request, parts);
  });
}

void Checkpoints::end() {
  guarded_->set_before_call({});
  stage_ = Stage::none;
}

// Nobody writes any more before what was written is removed. True: the save was done all the same.
bool Checkpoints::give_up(Trainer& trainer) {
  bool done = false;
  try {
    done = look(checkpoint::BackgroundSave::Wait::yes) && stage_ != Stage::parts;
  } catch (const base::Error&) {  // another rank's failure is told already
  }
  end();
  collectives::Group* world = trainer.session().world();
  if (world == nullptr) return done;
  const std::vector<std::int64_t> everybodys = tell_all(world, done ? 1 : 0);
  if (everybodys[0] == 0 && world->rank() == 0) checkpoint::abandon(file_system_, folder_, request_.step);
  return everybodys[0] != 0;
}

void Checkpoints::drop(Trainer& trainer, const SaveContext& context) {
  if (stage_ == Stage::none) return;
  background_.give_up();
  if (give_up(trainer)) return tell(context, result_);
  context.observer.on(observe::Notice{observe::Notice::Level::info, fmt::format("the save of step {} is given up for one of step {}", step_,
                                                                                trainer.progress().steps_done)});
}

void Checkpoints::collect(Trainer& trainer, const SaveContext& context, checkpoint::BackgroundSave::Wait wait) {
  collectives::Group* world = trainer.session().world();
  while (stage_ != Stage::none) {
    const double start = observe::seconds_now();
    bool ended = false;
    bool full = false;
    try {
      together(world, [&] { note_full(full, [&] { ended = look(wait); }); });
    } catch (const base::Error& error) {
      give_up(trainer);
      // The state that was not saved is gone; what is tried again is the present one.
      if (!wait_for_room(trainer, context, full, error.what())) throw;
      return save_now(trainer, context);
    }
    const std::vector<std::int64_t> everybodys = tell_all(world, ended ? 1 : 0);
    stalled_ += observe::seconds_now() - start;
    if (std::find(everybodys.begin(), everybodys.end(), 0) != everybodys.end()) return;
    if (stage_ == Stage::parts) {
      begin_commit(world);
      continue;
    }
    end();
    if (result_.seconds == 0.0) result_.seconds = observe::seconds_now() - began_;
    tell(context, result_);
  }
}

void Checkpoints::save(Trainer& trainer, const SaveContext& context) {
  collect(trainer, context, checkpoint::BackgroundSave::Wait::yes);
  if (!settings_.async) return save_now(trainer, context);
  bool full = false;
  try {
    start(trainer, context, full);
  } catch (const base::Error& error) {
    if (!wait_for_room(trainer, context, full, error.what())) throw;
    save_now(trainer, context);
  }
}

void Checkpoints::poll(Trainer& trainer, const SaveContext& context) { collect(trainer, context, checkpoint::BackgroundSave::Wait::no); }

void Checkpoints::settle(Trainer& trainer, const SaveContext& context) { collect(trainer, context, checkpoint::BackgroundSave::Wait::yes); }

void Checkpoints::forget() {
  checkpoint::remove_debris(file_system_, folder_);
  for (std::int64_t step : checkpoint::list_steps(file_system_, folder_)) {
    checkpoint::discard(file_system_, folder_ + "/" + checkpoint::step_name(step));
  }
}

}  // namespace plimsoll::train

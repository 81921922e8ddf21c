#include "train/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "config/config.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "io/log_file.h"
#include "io/posix_file_system.h"
#include "observe/clock.h"
#include "observe/metrics_file.h"
#include "observe/tensorboard_file.h"
#include "plan/file.h"
#include "train/ranks.h"
#include "train/setup/text.h"
#include "train/stored/stored_model.h"
#include "train/traced_step.h"
#include "train/trainer.h"

namespace plimsoll::train {

namespace {

constexpr std::size_t kLongestHostName = 256;

std::string host_name() {
  char name[kLongestHostName] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// What was run is kept beside the results: the resolved settings, the plan, and what the model is read and written with.
void store_description(io::FileSystem& file_system, const config::Run& run, const plan::Plan& plan, const std::string& decision) {
  io::replace_file(file_system, run.out + "/run.json",
                   io::as_bytes(base::write_json(config::to_json(run), base::JsonLayout::pretty) + "\n"));
  io::replace_file(file_system, run.out + "/plan.json", io::as_bytes(plan::to_text(plan) + "\n"));
  keep_model_files(file_system, run);
  if (!decision.empty()) io::replace_file(file_system, run.out + "/decision.json", io::as_bytes(decision));
}

// Lines of steps that will be done again are dropped, so that the file reads as if the run had never stopped.
void continue_metrics(io::FileSystem& file_system, const std::string& path, std::int64_t steps_done) {
  if (!file_system.status(path)) return;
  const std::string text = io::read_text(file_system, path);
  const std::string_view kept = observe::metrics_through(text, steps_done);
  if (kept.size() != text.size()) io::replace_file(file_system, path, io::as_bytes(kept));
}

void check_until(std::int64_t until, const config::Run& run) {
  if (until > run.steps) base::bad_input("--until is {}, but the run has {} steps (\"steps\"); expected one of those", until, run.steps);
  if (until % run.strategy.flush_every != 0) {
    base::not_legal("--until is {}, expected a multiple of \"strategy.flush_every\", which is {}: between flushes nothing can be saved",
                    until, run.strategy.flush_every);
  }
}

// The metrics and TensorBoard files of the run's folder.
class Logs {
 public:
  Logs(io::FileSystem& file_system, const config::Run& run, std::int64_t steps_done, const observe::Clock& clock,
       observe::Observers& observers)
      : notices_(notices_to(observers)),
        metrics_file_(file_system, continued(file_system, run.out + "/metrics.jsonl", steps_done), notices_),
        events_file_(file_system, run.out + "/" + observe::event_file_name(clock.unix_seconds(), host_name()), notices_),
        tensorboard_([this](std::string_view record) { events_file_.append(record); }, clock) {
    file_system.sync_directory(run.out);
    observers.add(metrics_);
    observers.add(tensorboard_);
  }

  void sync() { metrics_file_.sync(); }

 private:
  static io::LogNotices notices_to(observe::Observers& observers) {
    const auto warn = [&observers](std::string text) { observers.on(observe::Notice{observe::Notice::Level::warning, std::move(text)}); };
    return {.on_full =
                [warn](const io::IoError& error) {
                  warn(fmt::format("{}; what is to be logged waits in memory, and training goes on", error.what()));
                },
            .on_gone =
                [warn](const io::Path& path) {
                  warn(fmt::format("'{}' was removed while this run writes it; what it held is lost, and the log goes on in a new one",
                                   path.string()));
                }};
  }
  static std::string continued(io::FileSystem& file_system, std::string path, std::int64_t steps_done) {
    continue_metrics(file_system, path, steps_done);
    return path;
  }

  io::LogNotices notices_;
  io::LogFile metrics_file_;
  io::LogFile events_file_;
  observe::MetricsFile metrics_{[this](std::string_view line) { metrics_file_.append(line); }};
  observe::TensorboardFile tensorboard_;
};

// What one rank does. The first rank is heard and writes for all; every rank holds, trains and saves its own part.
class Rank {
 public:
  Rank(const config::Run& run, RunObserver& observer, const RunOptions& options, const std::atomic<bool>& stop_wanted,
       collectives::Transport* transport)
      : run_(run),
        observer_(observer),
        options_(options),
        stop_wanted_(stop_wanted),
        speaks_(transport == nullptr || transport->rank() == 0),
        start_(start_of()),
        trainer_(
            run,
            {.file_system = file_system_, .observer = observers_, .clock = clock_, .stop_wanted = stop_wanted_, .transport = transport}),
        checkpoints_(file_system_, run, checkpoint_folder(run).string()) {}

  void run() {
    if (options_.ready) options_.ready();
    if (speaks_) observer_.planned(trainer_.session().plan(), trainer_.capacity());
    open_folder();
    const std::int64_t began = begin();
    executor::Timeline timeline;
    const bool drawn = is_drawn(trainer_.session().plan());
    train(drawn || (speaks_ && options_.trace) ? &timeline : nullptr, began);
    std::vector<report::ClassTimes> times;
    if (drawn) times = gathered_times(trainer_.session(), timeline);
    if (!speaks_) return;
    observer_.ended({.run = run_,
                     .plan = trainer_.session().plan(),
                     .rank_class = trainer_.session().executor().rank_class(),
                     .capacity = trainer_.capacity(),
                     .began = began,
                     .done = trainer_.progress().steps_done,
                     .until = options_.until,
                     .stopped = stop_wanted_.load(),
                     .timeline = timeline,
                     .times = times});
  }

 private:
  // Opened before any work, so that a bad folder is refused at once.
  std::optional<StoredModel> start_of() {
    if (run_.model_path.empty()) return std::nullopt;
    return StoredModel::open(file_system_, {.model_folder = run_.model_path}, run_);
  }

  void open_folder() {
    if (speaks_) {
      io::make_directories(file_system_, run_.out);
      lock_ = io::FolderLock::take(run_.out);
      if (!lock_)
        base::bad_input("'{}' is in use by another training; give this run a folder of its own (\"out\"), or wait for that one", run_.out);
    }
    collectives::Group* const world = trainer_.session().world();
    if (world == nullptr) return;
    world->barrier();  // the folder is made
    if (!file_system_.status(run_.out))
      base::bad_input(
          "the folder '{}' of the first rank is not there; all ranks write their parts of a checkpoint to one folder, so "
          "\"out\" must be on a file system that all of them see",
          run_.out);
  }

  // Weights, states and the place in the data, from a checkpoint or from the start. Returns the steps that are done.
  std::int64_t begin() {
    Resumed resumed;
    if (!options_.fresh) {
      resumed = checkpoints_.resume(trainer_);
    } else if (speaks_) {
      checkpoints_.forget();
    }
    Beginning beginning{.run = run_,
                        .resumed = resumed,
                        .until = options_.until,
                        .room = checkpoints_.prepare(trainer_, run_.steps),
                        .data = trainer_.train_data(),
                        .steps_done = trainer_.progress().steps_done};
    if (start_ && beginning.steps_done == 0) beginning.absent = load_weights(*start_, trainer_.session());
    if (speaks_) observer_.begins(beginning);
    return beginning.steps_done;
  }

  void train(executor::Timeline* timeline, std::int64_t began) {
    if (speaks_) {
      store_description(file_system_, run_, trainer_.session().plan(), options_.decision);
      observers_.add(observer_);
      logs_.emplace(file_system_, run_, began, clock_, observers_);
    }
    trainer_.run({.save = [&](Trainer& at) { checkpoints_.save(at, saving_); },
                  .poll = [&](Trainer& at) { checkpoints_.poll(at, saving_); },
                  .drop = [&](Trainer& at) { checkpoints_.drop(at, saving_); },
                  .settle = [&](Trainer& at) { checkpoints_.settle(at, saving_); },
                  .timeline = timeline,
                  .until = options_.until});
    if (logs_) logs_->sync();
  }

  const config::Run& run_;
  RunObserver& observer_;
  const RunOptions& options_;
  const std::atomic<bool>& stop_wanted_;
  bool speaks_;
  io::PosixFileSystem file_system_;
  observe::SystemClock clock_;
  observe::Observers observers_;
  std::optional<StoredModel> start_;
  Trainer trainer_;
  std::optional<io::FolderLock> lock_;
  std::optional<Logs> logs_;  // of the first rank; outlive the saves, which sync them
  // The loss log up to a checkpoint is on the medium before the checkpoint is: a run resumed from it has the same log.
  const SaveContext saving_{.observer = observers_, .stop_wanted = stop_wanted_, .make_durable = [this] {
                              if (logs_) logs_->sync();
                            }};
  Checkpoints checkpoints_;
};

}  // namespace

void run(const config::Run& run, RunObserver& observer, const RunOptions& options) {
  check_until(options.until, run);
  const std::atomic<bool> never{false};
  const std::atomic<bool>& stop_wanted = options.stop_wanted == nullptr ? never : *options.stop_wanted;
  run_ranks({.run = run,
             .processes = options.processes,
             .also = {{"--fresh", options.fresh ? "given" : "not given"}, {"--until", std::to_string(options.until)}},
             .complain = options.complain},
            [&](collectives::Transport* transport) { Rank(run, observer, options, stop_wanted, transport).run(); });
}

}  // namespace plimsoll::train

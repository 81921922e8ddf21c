#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "base/processor.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/plan_search.h"
#include "cli/ranks.h"
#include "cli/say.h"
#include "cli/train_page.h"
#include "cli/train_words.h"
#include "collectives/agree.h"
#include "config/config.h"
#include "executor/core/bounds.h"
#include "io/files.h"
#include "io/folder_lock.h"
#include "io/log_file.h"
#include "io/posix_file_system.h"
#include "observe/chrome_trace.h"
#include "observe/metrics_file.h"
#include "observe/progress_line.h"
#include "observe/tensorboard_file.h"
#include "plan/file.h"
#include "report/waterline_text.h"
#include "train/checkpoints.h"
#include "train/setup/setup.h"
#include "train/setup/text.h"
#include "train/stored/stored_model.h"
#include "train/trainer.h"

namespace plimsoll::cli {

namespace {

// A signal handler can reach nothing but a global; the second signal ends the process as it would have without us.
std::atomic<bool> stop_wanted{false};

extern "C" void on_stop_signal(int number) {
  stop_wanted.store(true);
  std::signal(number, SIG_DFL);
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// `program`: whose streams the lanes are; null: nothing ran.
void write_trace(io::FileSystem& file_system, const std::string& path, const plan::Program* program, const executor::Timeline& timeline) {
  std::string text;
  observe::ChromeTrace trace([&](std::string_view piece) { text += piece; }, 0.0);
  trace.name_process(0, "rank 0");
  for (std::int32_t stream = 0; program != nullptr && stream < std::ssize(program->streams); ++stream) {
    const std::string_view resource = executor::resource_name(program->streams[static_cast<std::size_t>(stream)].kind);
    trace.name_thread({0, 2 * stream}, fmt::format("{}: calls", resource));
    trace.name_thread({0, 2 * stream + 1}, fmt::format("{}: instructions", resource));
  }
  const std::int64_t lane_around = program == nullptr ? 0 : 2 * std::ssize(program->streams);
  double end = 0.0;
  for (const executor::TimelineEvent& event : timeline.events) end = std::max(end, event.end);
  if (!timeline.around.empty()) trace.name_thread({0, lane_around}, "before and behind the step");
  for (const executor::Surrounding& around : timeline.around) {
    trace.write({.name = around.program,
                 .category = "program",
                 .lane = {0, lane_around},
                 .begin = around.before ? -around.seconds : end,
                 .seconds = around.seconds,
                 .args = {}});
  }
  for (const executor::TimelineEvent& event : timeline.events) {
    const bool is_call = event.kernel.empty();
    trace.write({.name = is_call ? event.name : event.kernel,
                 .category = is_call ? "call" : event.name,
                 .lane = {0, 2 * event.stream + (is_call ? 0 : 1)},
                 .begin = event.begin,
                 .seconds = event.end - event.begin,
                 .args = {{"micro_batch", base::Json(event.micro_batch)}, {"processor_us", base::Json(1e6 * event.processor)}}});
  }
  trace.finish();
  io::replace_file(file_system, path, io::as_bytes(text));
}

// Whether something of a step lies elsewhere than on the device, so that it may wait for other things than its own arithmetic.
bool uses_tiers(const plan::Program& program) {
  return std::any_of(program.streams.begin(), program.streams.end(), [](const plan::Stream& stream) {
    return stream.kind == plan::StreamKind::host_in || stream.kind == plan::StreamKind::disk_in;
  });
}

// What was run is kept beside the results: the resolved settings and the plan.
void store_description(io::FileSystem& file_system, const config::Run& run, const plan::Plan& plan) {
  io::replace_file(file_system, run.out + "/run.json",
                   io::as_bytes(base::write_json(config::to_json(run), base::JsonLayout::pretty) + "\n"));
  io::replace_file(file_system, run.out + "/plan.json", io::as_bytes(plan::to_text(plan) + "\n"));
}

std::string page_path(const config::Run& run) { return run.out + "/page.html"; }

// A page that cannot be written is told of, and the training is as good as without it.
void store_page(io::FileSystem& file_system, const TrainOptions& options, const TrainedRun& trained) {
  try {
    const std::string page = train_page(file_system, trained);
    io::replace_file(file_system, page_path(trained.run), io::as_bytes(page));
    if (!options.html.empty()) io::replace_file(file_system, options.html, io::as_bytes(page));
  } catch (const base::Error& error) {
    say("no page was written: {}\n", error.what());
  }
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

// What one rank does. The first rank speaks and writes for all; every rank holds, trains and saves its own part.
void train_rank(const TrainOptions& options, const Decided& decided, collectives::Transport* transport) {
  const config::Run& run = decided.run;
  io::PosixFileSystem file_system;
  std::optional<train::StoredModel> start;  // opened before any work, so that a bad folder is refused at once
  if (!run.model_path.empty()) start.emplace(train::StoredModel::open(file_system, {.model_folder = run.model_path}, run));
  const bool speaks = transport == nullptr || transport->rank() == 0;
  const observe::SystemClock clock;
  observe::Observers observers;
  train::Trainer trainer(
      run, {.file_system = file_system, .observer = observers, .clock = clock, .stop_wanted = stop_wanted, .transport = transport});
  // Until there is something to save, a signal ends the program.
  std::signal(SIGTERM, on_stop_signal);
  std::signal(SIGINT, on_stop_signal);
  const train::Capacity& capacity = trainer.capacity();
  const observe::Terminal terminal = observe::detect_terminal(1);
  std::optional<io::FolderLock> lock;
  if (speaks) {
    if (!run.deepspeed.equation.empty()) show("{}\n\n", run.deepspeed.equation);
    if (!decided.words.empty()) show("{}\n", decided.words);
    show("{}\n", report::waterline_text(trainer.session().plan(), train::kTrain,
                                        {.color = terminal.color,
                                         .width = 72,
                                         .capacity = capacity.device,
                                         .reserve = capacity.reserve,
                                         .host_reserve = capacity.host_reserve}));
    show("processor: {}\n", base::to_string(base::processor()));
    io::make_directories(file_system, run.out);
    lock = io::FolderLock::take(run.out);
    if (!lock)
      base::bad_input("'{}' is in use by another training; give this run a folder of its own (\"out\"), or wait for that one", run.out);
    io::clear_leftover(file_system, page_path(run));  // a run that has ended does not write it again
  }
  collectives::Group* const world = trainer.session().world();
  if (world != nullptr) {
    world->barrier();  // the folder is made
    if (!file_system.status(run.out))
      base::bad_input(
          "the folder '{}' of the first rank is not there; all ranks write their parts of a checkpoint to one folder, so "
          "\"out\" must be on a file system that all of them see",
          run.out);
  }

  std::optional<io::LogFile> metrics_file;  // outlives the saves, which sync it
  train::Checkpoints checkpoints(file_system, run, train::checkpoint_folder(run).string());
  if (options.fresh) {
    if (speaks) checkpoints.forget();
  } else {
    const train::Resumed resumed = checkpoints.resume(trainer);
    if (speaks) say_where_it_starts(resumed, run, options.until);
  }
  const std::string room = checkpoints.prepare(trainer, run.steps);
  if (speaks && !room.empty()) show("{}\n", room);
  const std::int64_t began = trainer.progress().steps_done;
  if (speaks && began < run.steps) say_how_much(trainer.train_data(), run, began);
  if (start && trainer.progress().steps_done == 0) {
    if (world != nullptr) collectives::agree(*world, {{"model.path", train::digest_of(*start)}});
    const auto absent = train::load_weights(*start, trainer.session());
    if (speaks) say_absent(run.model_path, absent);
  }

  executor::Timeline timeline;
  const bool drawn = is_drawn(trainer.session().plan());
  const bool traced = drawn || (speaks && !options.trace.empty());
  // The loss log up to a checkpoint is on the medium before the checkpoint is: a run resumed from it has the same log.
  const train::SaveContext saving{.observer = observers, .stop_wanted = stop_wanted, .make_durable = [&metrics_file] {
                                    if (metrics_file) metrics_file->sync();
                                  }};
  const train::Trainer::Hooks hooks{.save = [&](train::Trainer& at) { checkpoints.save(at, saving); },
                                    .poll = [&](train::Trainer& at) { checkpoints.poll(at, saving); },
                                    .drop = [&](train::Trainer& at) { checkpoints.drop(at, saving); },
                                    .settle = [&](train::Trainer& at) { checkpoints.settle(at, saving); },
                                    .timeline = traced ? &timeline : nullptr,
                                    .until = options.until};
  if (!speaks) {
    trainer.run(hooks);
    if (drawn) gathered_times(trainer.session(), timeline);
    return;
  }

  store_description(file_system, run, trainer.session().plan());
  train::keep_model_files(file_system, run);
  if (!decided.json.empty()) io::replace_file(file_system, run.out + "/decision.json", io::as_bytes(decided.json));
  const std::string metrics_path = run.out + "/metrics.jsonl";
  continue_metrics(file_system, metrics_path, trainer.progress().steps_done);
  observe::ProgressLine progress([](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout), std::fflush(stdout); },
                                 clock, {.terminal = terminal});
  const auto tell_full = [&observers](const io::IoError& error) {
    observers.on(observe::Notice{observe::Notice::Level::warning,
                                 fmt::format("{}; what is to be logged waits in memory, and training goes on", error.what())});
  };
  const auto tell_gone = [&observers](const io::Path& path) {
    observers.on(observe::Notice{
        observe::Notice::Level::warning,
        fmt::format("'{}' was removed while this run writes it; what it held is lost, and the log goes on in a new one", path.string())});
  };
  const io::LogNotices notices{.on_full = tell_full, .on_gone = tell_gone};
  metrics_file.emplace(file_system, metrics_path, notices);
  io::LogFile events_file(file_system, run.out + "/" + observe::event_file_name(clock.unix_seconds(), host_name()), notices);
  file_system.sync_directory(run.out);
  observe::MetricsFile metrics([&](std::string_view line) { metrics_file->append(line); });
  observe::TensorboardFile tensorboard([&](std::string_view record) { events_file.append(record); }, clock);
  observers.add(progress);
  observers.add(metrics);
  StepSeconds step_seconds;
  observers.add(tensorboard);
  observers.add(step_seconds);
  EndNotice end_notice(observers, clock, options.until > 0 ? options.until : run.steps);
  observers.add(end_notice);
  trainer.run(hooks);
  metrics_file->sync();
  say_where_it_ends({.began = began, .done = trainer.progress().steps_done, .until = options.until, .stopped = stop_wanted.load()}, run);
  const plan::Program& program = *plan::find_program(trainer.session().executor().rank_class(), train::kTrain);
  if (!options.trace.empty()) write_trace(file_system, options.trace, &program, timeline);
  if ((uses_tiers(program) || !timeline.around.empty()) && !timeline.events.empty())
    show("{}\n", executor::to_string(executor::bounds_of(program, timeline)));
  std::vector<report::ClassTimes> times;
  if (drawn) times = gathered_times(trainer.session(), timeline);
  if (step_seconds.median() > 0.0 && (drawn || !options.html.empty())) {
    store_page(file_system, options,
               {.run = run,
                .plan = trainer.session().plan(),
                .capacity = capacity,
                .times = std::move(times),
                .around = timeline.around,
                .step_seconds = step_seconds.median()});
  }
}

}  // namespace

void train_command(const TrainOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads the words may go; the training is not for them alone
  io::PosixFileSystem file_system;
  const config::Run wanted = read_run(file_system, options.run);
  say_notes(wanted);
  if (const std::string idle = config::idle_settings(wanted); !idle.empty() && is_first_process()) say("plimsoll: {}", idle);
  const Decided decided = decide_here(file_system, wanted, options.run.ranks > 0 ? options.run.ranks : ranks_started());
  check_until(options.until, decided.run);
  // A bad path is told now, not after the run.
  if (!options.trace.empty()) write_trace(file_system, options.trace, nullptr, {});
  if (!options.html.empty()) io::replace_file(file_system, options.html, io::as_bytes("training goes on\n"));
  run_ranks({.run = decided.run,
             .processes = options.processes,
             .also = {{"--fresh", options.fresh ? "given" : "not given"}, {"--until", std::to_string(options.until)}}},
            [&](collectives::Transport* transport) { train_rank(options, decided, transport); });
}

}  // namespace plimsoll::cli

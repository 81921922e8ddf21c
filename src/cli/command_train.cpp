#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/processor.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/plan_search.h"
#include "cli/say.h"
#include "cli/train_page.h"
#include "cli/train_words.h"
#include "config/config.h"
#include "executor/core/bounds.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "observe/chrome_trace.h"
#include "observe/progress_line.h"
#include "train/ranks.h"
#include "train/run.h"
#include "train/traced_step.h"

namespace plimsoll::cli {

namespace {

// A signal handler can reach nothing but a global; the second signal ends the process as it would have without us.
std::atomic<bool> stop_wanted{false};

extern "C" void on_stop_signal(int number) {
  stop_wanted.store(true);
  std::signal(number, SIG_DFL);
}

// Until there is something to save, a signal ends the program.
void stop_on_signals() {
  std::signal(SIGTERM, on_stop_signal);
  std::signal(SIGINT, on_stop_signal);
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

std::string page_path(const config::Run& run) { return run.out + "/page.html"; }

// Prints what a run tells, and draws its page.
class Speaker final : public train::RunObserver {
 public:
  Speaker(io::FileSystem& file_system, const TrainOptions& options, const Decided& decided)
      : file_system_(file_system),
        options_(options),
        words_(decided.words),
        end_notice_(progress_, clock_, options.until > 0 ? options.until : decided.run.steps),
        equation_(decided.run.deepspeed.equation) {}

  void on(const observe::Event& event) override {
    progress_.on(event);
    step_seconds_.on(event);
    end_notice_.on(event);
  }

  void planned(const plan::Plan& plan, const train::Capacity& capacity) override {
    if (!equation_.empty()) show("{}\n\n", equation_);
    if (!words_.empty()) show("{}\n", words_);
    show_waterline(plan, train::kTrain, capacity);
    show("processor: {}\n", base::to_string(base::processor()));
  }

  void begins(const train::Beginning& beginning) override {
    io::clear_leftover(file_system_, page_path(beginning.run));  // a run that has ended does not write it again
    say_where_it_starts(beginning.resumed, beginning.run, beginning.until);
    if (!beginning.room.empty()) show("{}\n", beginning.room);
    if (beginning.steps_done < beginning.run.steps) say_how_much(beginning.data, beginning.run, beginning.steps_done);
    say_absent(beginning.run.model_path, beginning.absent);
  }

  void ended(const train::End& end) override {
    say_where_it_ends(end);
    const plan::Program& program = *plan::find_program(end.rank_class, train::kTrain);
    if (!options_.trace.empty()) write_trace(file_system_, options_.trace, &program, end.timeline);
    if ((uses_tiers(program) || !end.timeline.around.empty()) && !end.timeline.events.empty())
      show("{}\n", executor::to_string(executor::bounds_of(program, end.timeline)));
    const bool drawn = train::is_drawn(end.plan);
    if (step_seconds_.median() > 0.0 && (drawn || !options_.html.empty())) store_page(end);
  }

 private:
  // A page that cannot be written is told of, and the training is as good as without it.
  void store_page(const train::End& end) {
    try {
      const std::string page = train_page(file_system_, end, step_seconds_.median());
      io::replace_file(file_system_, page_path(end.run), io::as_bytes(page));
      if (!options_.html.empty()) io::replace_file(file_system_, options_.html, io::as_bytes(page));
    } catch (const base::Error& error) {
      say("no page was written: {}\n", error.what());
    }
  }

  io::FileSystem& file_system_;
  const TrainOptions& options_;
  std::string words_;
  observe::SystemClock clock_;
  observe::Terminal terminal_ = observe::detect_terminal(1);
  observe::ProgressLine progress_{[](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout), std::fflush(stdout); },
                                  clock_,
                                  {.terminal = terminal_}};
  StepSeconds step_seconds_;
  EndNotice end_notice_;
  std::string equation_;
};

}  // namespace

void train_command(const TrainOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads the words may go; the training is not for them alone
  io::PosixFileSystem file_system;
  const config::Run wanted = read_run(file_system, options.run);
  say_notes(wanted);
  if (const std::string idle = config::idle_settings(wanted); !idle.empty() && train::is_first_process()) say("plimsoll: {}", idle);
  const Decided decided = decide_here(file_system, wanted, options.run.ranks > 0 ? options.run.ranks : train::ranks_started());
  // A bad path is told now, not after the run.
  if (!options.trace.empty()) write_trace(file_system, options.trace, nullptr, {});
  if (!options.html.empty()) io::replace_file(file_system, options.html, io::as_bytes("training goes on\n"));
  Speaker speaker(file_system, options, decided);
  train::run(decided.run, speaker,
             {.fresh = options.fresh,
              .until = options.until,
              .trace = !options.trace.empty(),
              .processes = command_of_ranks(options.processes),
              .decision = decided.json,
              .stop_wanted = &stop_wanted,
              .ready = stop_on_signals,
              .complain = complain_of_ranks});
}

}  // namespace plimsoll::cli

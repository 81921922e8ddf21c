#include "cli/train_words.h"

#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "cli/say.h"
#include "observe/progress_line.h"

namespace plimsoll::cli {

namespace {

std::string epochs_text(double epochs) {
  return epochs < 0.995 ? fmt::format("{:.2g}% of the data", 100.0 * epochs) : fmt::format("{:.3g} epochs", epochs);
}

// ", at 2026-01-31 14:05" by the clock of this machine; nothing where it cannot say.
std::string time_of_day(double unix_seconds) {
  constexpr double kFarthest = 4e11;
  if (!(unix_seconds < kFarthest)) return "";
  const auto at = static_cast<std::time_t>(unix_seconds);
  std::tm local{};
  char text[64] = {};
  if (::localtime_r(&at, &local) == nullptr || std::strftime(text, sizeof text, ", at %Y-%m-%d %H:%M", &local) == 0) return "";
  return text;
}

}  // namespace

void say_where_it_starts(const train::Resumed& resumed, const config::Run& run, std::int64_t until) {
  for (const std::string& problem : resumed.problems) show("passed over: {}\n", problem);
  if (!resumed.from) return;
  if (resumed.steps_done > run.steps) {
    show("nothing to do: {} was saved after step {}, and \"steps\" is {}; set \"steps\" above {} to go on, or start over with --fresh\n\n",
         *resumed.from, resumed.steps_done, run.steps, resumed.steps_done);
  } else if (resumed.steps_done == run.steps) {
    show(
        "the run is finished: all {} steps are done, and {} holds the result; set \"steps\" higher to go on, or start over with "
        "--fresh\n\n",
        run.steps, *resumed.from);
  } else if (until > 0 && resumed.steps_done >= until) {
    show("nothing to do: {} was saved after step {}, and --until is {}; leave --until out to go on\n\n", *resumed.from, resumed.steps_done,
         until);
  } else {
    show("resuming after step {} from {}, the newest valid checkpoint\n\n", resumed.steps_done, *resumed.from);
  }
  if (!resumed.other_data.empty()) show("its data were {}; the run goes on with others\n\n", resumed.other_data);
}

void say_how_much(const data::SampleSource& data, const config::Run& run, std::int64_t steps_done) {
  const std::int64_t steps = std::max<std::int64_t>(0, run.steps - steps_done);
  const std::int64_t sequences = steps * run.batch.global;
  const double epochs = static_cast<double>(sequences) / static_cast<double>(data.samples_per_epoch());
  const std::string which = steps_done > 0 ? fmt::format("the {} steps left", steps) : fmt::format("{} steps", steps);
  show("data: {} tokens; {} of {} x {} are {} tokens, {}\n\n", observe::rate_text(static_cast<double>(data.size())), which,
       run.batch.global, run.batch.sequence, observe::rate_text(static_cast<double>(sequences * run.batch.sequence)), epochs_text(epochs));
}

void EndNotice::on(const observe::Event& event) {
  constexpr int kTimed = 2;  // the first step also pays for the start
  const auto* step = std::get_if<observe::StepDone>(&event);
  if (step == nullptr || ++seen_ > kTimed) return;
  const double before = std::exchange(seconds_, clock_.seconds());
  const std::int64_t left = last_ - step->step;
  if (seen_ < kTimed || left <= 0) return;
  const double each = seconds_ - before;
  const double seconds = each * static_cast<double>(left);
  heard_by_.on(observe::Notice{observe::Notice::Level::info,
                               fmt::format("{:.3g} s a step: the run ends in about {}{}", each, observe::duration_text(seconds),
                                           time_of_day(clock_.unix_seconds() + seconds))});
}

void say_where_it_ends(const train::End& end) {
  if (end.done >= end.run.steps) return;
  if (end.stopped) {
    show("stopped {}; run the same command to go on\n", end.done == 0 ? "before the first step" : fmt::format("after step {}", end.done));
  } else if (end.until > 0 && end.done > end.began) {
    show("stopped after step {}, as --until says; run the same command without it to go on\n", end.done);
  }
}

}  // namespace plimsoll::cli

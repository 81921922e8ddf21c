#include "observe/progress_line.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace plimsoll::observe {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kSmoothing = 0.1;  // share of the newest step in the average that predicts the rest
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kPlain = "\x1b[0m";
constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0.0) return "?";
  const auto whole = static_cast<std::int64_t>(std::min(std::round(seconds), 3.6e9));
  if (whole >= 86400) return fmt::format("{}d {:02d}h", whole / 86400, whole % 86400 / 3600);
  if (whole >= 3600) return fmt::format("{}h {:02d}m", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{}m {:02d}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string rate_text(double per_second) {
  if (!std::isfinite(per_second)) return "?";
  if (per_second < 999.5) return fmt::format("{:.0f}", per_second);
  const bool millions = per_second >= 999.5e3;
  const double value = per_second / (millions ? 1e6 : 1e3);
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, millions ? "M" : "k");
}

ProgressLine::ProgressLine(Sink sink, const Clock& clock, const ProgressOptions& options)
    : sink_(std::move(sink)), clock_(clock), options_(options) {}

void ProgressLine::on(const Event& event) {
  if (const auto* run = std::get_if<RunStarted>(&event)) {
    start(*run);
  } else if (const auto* done = std::get_if<StepDone>(&event)) {
    step(*done);
  } else if (const auto* saved = std::get_if<CheckpointSaved>(&event)) {
    const std::string stalled = saved->stalled ? fmt::format(", training waited {:.3f} s", *saved->stalled) : std::string();
    tell(fmt::format("saved {} ({:.2f} s{})", saved->path, saved->seconds, stalled));
  } else if (const auto* notice = std::get_if<Notice>(&event)) {
    tell(notice->level == Notice::Level::warning ? paint(kYellow, "warning: ") + notice->text : notice->text);
  } else {
    end();
  }
}

void ProgressLine::start(const RunStarted& run) {
  run_ = run;
  last_event_ = clock_.seconds();
  steps_seen_ = 0;
  last_shown_.reset();
  hidden_.reset();
}

void ProgressLine::step(const StepDone& step) {
  const double now = clock_.seconds();
  const double seconds = now - last_event_;
  last_event_ = now;
  ++steps_seen_;
  // The first step pays for start-up: it counts only until there is another.
  const bool replace = steps_seen_ <= 2;
  smoothed_seconds_ = replace ? seconds : (1.0 - kSmoothing) * smoothed_seconds_ + kSmoothing * seconds;
  if (!due(step)) {
    hidden_ = step;
    return;
  }
  hidden_.reset();
  last_shown_ = now;
  last_shown_step_ = step.step;
  if (options_.terminal.interactive) {
    sink_(std::string(kClearLine) + text_of(step));
    line_open_ = true;
  } else {
    sink_(text_of(step) + "\n");
  }
}

bool ProgressLine::due(const StepDone& step) const {
  if (!last_shown_ || step.step >= run_.last_step) return true;
  if (options_.terminal.interactive) return clock_.seconds() - *last_shown_ >= kRedrawSeconds;
  if (step.skipped || step.evaluation) return true;
  const bool by_time = options_.plain_every_seconds > 0.0 && clock_.seconds() - *last_shown_ >= options_.plain_every_seconds;
  const bool by_steps = options_.plain_every_steps > 0 && step.step - last_shown_step_ >= options_.plain_every_steps;
  return by_time || by_steps;
}

std::string ProgressLine::text_of(const StepDone& step) const {
  const std::int64_t left = std::max<std::int64_t>(0, run_.last_step - step.step);
  std::string head = fmt::format("step {}/{}", step.step, run_.last_step);
  std::string loss = fmt::format("loss {:.4f}", step.loss);
  std::string tail = fmt::format("  {} tokens/s", rate_text(step.tokens_per_second));
  if (step.evaluation) tail += fmt::format("  eval {:.4f}", step.evaluation->loss);
  if (step.skipped) tail += "  skipped (overflow)";
  tail += left == 0 ? "  done" : fmt::format("  {} left", duration_text(smoothed_seconds_ * static_cast<double>(left)));
  if (options_.terminal.interactive) {
    // A line that wraps cannot be redrawn in place.
    const std::size_t room = static_cast<std::size_t>(std::max(1, options_.terminal.columns - 1));
    const std::size_t before = head.size() + 2 + loss.size();
    if (before > room) return (head + "  " + loss).substr(0, room);
    tail = tail.substr(0, room - before);
  }
  return head + "  " + paint(kBold, std::move(loss)) + tail;
}

std::string ProgressLine::paint(std::string_view code, std::string text) const {
  if (!options_.terminal.color) return text;
  return fmt::format("{}{}{}", code, text, kPlain);
}

void ProgressLine::tell(std::string_view text) {
  sink_(fmt::format("{}{}\n", line_open_ ? kClearLine : "", text));
  line_open_ = false;
}

void ProgressLine::end() {
  // The last state is always shown, also when the run stopped between two due lines.
  if (hidden_) {
    sink_(fmt::format("{}{}", line_open_ ? kClearLine : "", text_of(*hidden_)));
    line_open_ = true;
    hidden_.reset();
  }
  if (line_open_) sink_("\n");
  line_open_ = false;
}

}  // namespace plimsoll::observe

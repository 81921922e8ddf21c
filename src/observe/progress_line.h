// What a person watches: step, loss, tokens per second, time left.
//
// On a terminal it is one line, redrawn in place at most ten times a second; notices scroll above it. Elsewhere (a
// file, a pipe) it is a plain line at the first and last step and then every so many seconds or steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "observe/clock.h"
#include "observe/event.h"
#include "observe/sink.h"
#include "observe/terminal.h"

namespace plimsoll::observe {

struct ProgressOptions {
  Terminal terminal = {};
  double plain_every_seconds = 10.0;   // not on a terminal; 0 = no limit by time
  std::int64_t plain_every_steps = 0;  // 0 = no limit by steps
};

class ProgressLine final : public Observer {
 public:
  ProgressLine(Sink sink, const Clock& clock, const ProgressOptions& options);
  void on(const Event& event) override;

 private:
  void start(const RunStarted& run);
  void step(const StepDone& step);
  void tell(std::string_view text);
  void end();
  bool due(const StepDone& step) const;
  std::string text_of(const StepDone& step) const;
  std::string paint(std::string_view code, std::string text) const;

  Sink sink_;
  const Clock& clock_;
  ProgressOptions options_;
  RunStarted run_;
  double last_event_ = 0.0;        // when the previous step ended
  double smoothed_seconds_ = 0.0;  // per step, everything between steps included
  std::int64_t steps_seen_ = 0;
  std::optional<double> last_shown_;
  std::int64_t last_shown_step_ = 0;
  std::optional<StepDone> hidden_;  // the newest step, when it has not been drawn
  bool line_open_ = false;          // an unfinished line is on the terminal
};

// "1h 02m", "3m 05s", "12s"
std::string duration_text(double seconds);
// "987", "12.3k", "4.56M"
std::string rate_text(double per_second);

}  // namespace plimsoll::observe

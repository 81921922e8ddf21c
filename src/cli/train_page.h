// The page of a training: what really ran, beside what was predicted for it.
//
// One step of the run is traced. Its calls make the timeline; what the simulator says of the very plan, on this machine as it was
// measured, makes the other. Ranks of a class do the same, so the first of each class speaks for it.
#pragma once

#include <string>
#include <vector>

#include "config/run.h"
#include "executor/core/timeline.h"
#include "io/file_system.h"
#include "observe/event.h"
#include "report/page.h"
#include "train/session/session.h"
#include "train/setup/setup.h"

namespace plimsoll::cli {

// How long steps took, for the page.
class StepSeconds final : public observe::Observer {
 public:
  void on(const observe::Event& event) override;

  // Without the first, which also touches fresh memory, and the traced second, where there are others; zero: none was made.
  double median() const;

 private:
  std::vector<double> seconds_;
};

// Whether a step of the plan is small enough to be traced and drawn.
bool is_drawn(const plan::Plan& plan);

// When the calls of every class ran in the traced step; empty where no step was traced. Called by all ranks together.
std::vector<report::ClassTimes> gathered_times(train::Session& session, const executor::Timeline& timeline);

struct TrainedRun {
  const config::Run& run;
  const plan::Plan& plan;
  train::Capacity capacity;
  std::vector<report::ClassTimes> times;
  std::vector<executor::Surrounding> around;  // of the traced step
  double step_seconds = 0.0;
};

std::string train_page(io::FileSystem& file_system, const TrainedRun& trained);

}  // namespace plimsoll::cli

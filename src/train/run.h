// A training from its first step to its last, as one call: ranks, weights to start from, resuming, saving, logs and the run's folder.
//
//   train::RunObserver observer;                              // or one of your own, which hears every step
//   const config::Run run = config::parse_run(text, "run.json", {});
//   train::run(run, observer);
//
// `plimsoll train` is this call, with an observer that prints.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/run.h"
#include "executor/core/timeline.h"
#include "io/file_system.h"
#include "observe/event.h"
#include "plan/plan.h"
#include "report/page.h"
#include "train/checkpoints.h"
#include "train/setup/setup.h"

namespace plimsoll::train {

// What is known once the first step can begin.
struct Beginning {
  const config::Run& run;
  const Resumed& resumed;
  std::int64_t until = 0;                // the step after which this start is to stop; 0: the last one
  std::string room;                      // that there is room for fewer checkpoints than the run is to keep; empty: there is for all
  const data::SampleSource& data;        // what it trains on
  std::int64_t steps_done = 0;           // before
  std::vector<std::string> absent = {};  // parameters that the model folder lacks: they are drawn from the seed
};

// What is known when the last step is done.
struct End {
  const config::Run& run;
  const plan::Plan& plan;
  const plan::RankClass& rank_class;  // of the first rank
  const Capacity& capacity;
  std::int64_t began = 0;                        // steps that were done at the start
  std::int64_t done = 0;                         // and that are now
  std::int64_t until = 0;                        // as above
  bool stopped = false;                          // because somebody wanted it to
  const executor::Timeline& timeline;            // of the first rank's traced step; empty where none was
  const std::vector<report::ClassTimes>& times;  // of all classes, likewise
};

// Hears how a run goes, on the thread of the first rank: the events of every step, and what stands around them.
class RunObserver : public observe::Observer {
 public:
  void on(const observe::Event& /*event*/) override {}
  // The plan that will run, before there is anything in the run's folder.
  virtual void planned(const plan::Plan& /*plan*/, const Capacity& /*capacity*/) {}
  virtual void begins(const Beginning& /*beginning*/) {}
  virtual void ended(const End& /*end*/) {}
};

struct RunOptions {
  bool fresh = false;                                  // do not resume: the run's checkpoints are removed
  std::int64_t until = 0;                              // stop after this step; 0: after all of the run's
  bool trace = false;                                  // time the calls of the second step, also where the plan is too large to be drawn
  std::vector<std::string> processes = {};             // as RankedRun::processes
  std::string decision = {};                           // how the strategy was chosen, to be kept with the run
  const std::atomic<bool>* stop_wanted = nullptr;      // finish the step in hand, save and return
  std::function<void()> ready = {};                    // called by each rank once there is something to save
  std::function<void(const std::string&)> complain{};  // as RankedRun::complain
};

// Every rank of the run, as its transport and launcher say. Throws a base::Error of the kind that the exit codes tell.
void run(const config::Run& run, RunObserver& observer, const RunOptions& options = {});

}  // namespace plimsoll::train

// What a search for strategies found, as its text, its JSON and its page show it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/plan_named.h"
#include "cluster/cluster.h"
#include "config/run.h"
#include "io/file_system.h"
#include "planner/search.h"
#include "planner/whole_run.h"
#include "report/page.h"
#include "train/foresight/forecast.h"

namespace plimsoll::cli {

using planner::Candidate;
using planner::Found;
using planner::Problem;

// What the simulator found of the plan that a candidate becomes.
struct Simulated {
  double exposed = 0.0;                               // share of the step in which ranks only move data
  std::vector<std::pair<std::string, double>> moved;  // bytes over each kind of link in a step, all ranks
  bool outlined = false;                              // from an outline where training would run a whole plan; the first row never is
};

// A choice whose plan was made and cannot be had: it does not fit after all, or something refused it.
struct Refused {
  planner::Choice choice;
  std::string reason;
};

struct Outcome {
  const config::Run& run;
  cluster::Cluster cluster;
  Problem problem;
  planner::Space space;
  Found found;
  std::vector<Candidate> rows;                           // the best of each division of the ranks, best first
  std::vector<std::optional<Simulated>> simulated = {};  // by row: nothing where it is only estimated
  std::vector<planner::Verdict> verdicts;
  std::vector<Refused> refused = {};
  std::optional<NamedPlan> named = {};  // what another planner would choose
};

inline constexpr double kTera = 1e12;

double tokens_per_step(const Problem& problem);
double model_tflops(const Problem& problem, double seconds);  // of a device, as published tables count
std::string seconds_text(double seconds);
std::string count_text(double count);

// What training on --tokens takes with the best candidate, and what failures (--mtbf) cost.
struct Whole {
  planner::WholeRun run;
  base::Bytes checkpoint;
  double storage = 0.0;       // bytes a second that checkpoints are saved at
  std::string_view saved_to;  // what that is the rate of
  planner::RunPrices prices;
};

// nullopt where nobody asked.
std::optional<Whole> whole_run_of(const Outcome& outcome, const PlanOptions& options);

// When each call ran, as the page wants it.
std::vector<report::ClassTimes> class_times(const plan::Plan& plan, const executor::sim::Result& result);

// The best strategy drawn, where its plan is small enough, and all of them compared.
void write_page(io::FileSystem& file_system, const Outcome& outcome, const PlanOptions& options);

}  // namespace plimsoll::cli

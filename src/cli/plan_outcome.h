// What a search for strategies found, as its text, its JSON and its page show it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/plan_named.h"
#include "cluster/cluster.h"
#include "config/run.h"
#include "io/file_system.h"
#include "planner/search.h"
#include "planner/whole_run.h"

namespace plimsoll::cli {

using planner::Candidate;
using planner::Found;
using planner::Problem;

struct Outcome {
  const config::Run& run;
  cluster::Cluster cluster;
  Problem problem;
  planner::Space space;
  Found found;
  std::vector<Candidate> rows;  // the best of each division of the ranks, best first
  std::vector<planner::Verdict> verdicts;
  std::optional<NamedPlan> named = {};  // what another planner would choose
};

double tokens_per_step(const Problem& problem);
double model_tflops(const Problem& problem, double seconds);  // of a device, as published tables count
std::string seconds_text(double seconds);
std::string count_text(double count);

// What training on --tokens takes with the best candidate; nullopt where nobody asked.
std::optional<planner::WholeRun> whole_run_of(const Outcome& outcome, const PlanOptions& options);

// The best strategy drawn, where its plan is small enough, and all of them compared.
void write_page(io::FileSystem& file_system, const Outcome& outcome, const PlanOptions& options);

}  // namespace plimsoll::cli

// `plimsoll plan --planner pipedream`: what a planner of the literature would choose, beside what ours does: in one common count, and as
// the plan that its choice becomes, on the simulator's clock.
#pragma once

#include <optional>

#include "base/json.h"
#include "cli/commands.h"
#include "cluster/cluster.h"
#include "config/run.h"
#include "planner/search.h"

namespace plimsoll::cli {

struct NamedPlan {
  std::string planner;
  std::string stages;  // "layers 1-6 on 4 x 2, ..."
  std::int64_t micro = 1;
  double batch_seconds = 0.0;                    // the common count
  double ours_seconds = 0.0;                     // of our best choice
  std::optional<planner::Choice> choice = {};    // to be run; nullopt: no strategy says the same
  std::optional<double> simulated_seconds = {};  // a step of it
  std::string why_not_simulated = {};
};

bool is_named(const std::string& planner);

// For `run`. not_legal where it finds nothing that fits, or the cluster is too large for it.
NamedPlan plan_named(const std::string& planner, const config::Run& run, const planner::Problem& problem, const cluster::Cluster& cluster,
                     const planner::Choice& ours);

base::Json to_json(const NamedPlan& plan);
// Beside a step of our best choice.
std::string text_of(const NamedPlan& plan, double ours_step);

}  // namespace plimsoll::cli

// `plimsoll plan --planner pipedream`: what a planner of the literature would choose, beside what ours does, in one common count.
#pragma once

#include "base/json.h"
#include "cli/commands.h"
#include "cluster/cluster.h"
#include "planner/search.h"

namespace plimsoll::cli {

struct NamedPlan {
  std::string planner;
  std::string stages;  // "layers 1-6 on 4 x 2, ..."
  std::int64_t micro = 1;
  double batch_seconds = 0.0;  // the common count
  double ours_seconds = 0.0;   // of our best choice
};

bool is_named(const std::string& planner);

// not_legal where it finds nothing that fits, or the cluster is too large for it.
NamedPlan plan_named(const std::string& planner, const planner::Problem& problem, const cluster::Cluster& cluster,
                     const planner::Choice& ours);

base::Json to_json(const NamedPlan& plan);
std::string text_of(const NamedPlan& plan);

}  // namespace plimsoll::cli

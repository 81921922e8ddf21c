// From a run and a cluster to what the planner searches, and back to a run that it decided.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "config/run.h"
#include "planner/search.h"

namespace plimsoll::train {

// not_legal when the run asks for products of a type that the cluster's devices do not have.
void require_precision(const config::Run& run, const cluster::Cluster& cluster);

// The run on `ranks` of the cluster's devices. not_legal when the cluster has fewer.
planner::Problem planning_problem(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks);

// What the run file, --set or a DeepSpeed file decided; all else is open.
planner::Pins pins_of(const config::Run& run);

// Everything that is open for the run. not_legal that names both sides where pins contradict each other.
planner::Space planning_space(const config::Run& run, const planner::Problem& problem);

// The run with the planner's choice in it.
config::Run decided(config::Run run, const planner::Choice& choice);

// not_legal with the least that a rank would need, and the smallest cluster of such nodes that holds the model.
[[noreturn]] void refuse(const config::Run& run, const cluster::Cluster& cluster, const planner::Problem& problem,
                         const planner::Found& found);

// The fewest nodes of such a cluster on which anything fits; 0 where `most` are not enough.
std::int64_t fewest_nodes(const config::Run& run, const cluster::Cluster& cluster, std::int64_t most);

// The run's model with another number of heads, layers and widths growing with them.
model::Model scaled_model(const model::Model& model, std::int64_t heads);

// What is still called training; zeros ask nothing.
struct Pace {
  double share = 0.0;         // of the devices' rate
  double step_seconds = 0.0;  // at most
};
// The longest step of the run that keeps the pace; zero: any does.
double longest_step(const config::Run& run, const cluster::Cluster& cluster, const planner::Problem& problem, const Pace& pace);

// The largest of these, of fewer than `heads` where that is given, for which any strategy fits `ranks` of the cluster's devices and is
// estimated to keep the pace; nullopt where none does.
std::optional<model::Model> largest_model(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks, const Pace& pace,
                                          std::int64_t heads = 0);

}  // namespace plimsoll::train

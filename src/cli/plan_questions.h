// The questions that `plimsoll plan` can be asked, each with the options that it takes, and the answers that are a size: the largest model,
// the smallest cluster.
#pragma once

#include <cstdint>

#include "cli/commands.h"
#include "cluster/cluster.h"
#include "config/run.h"

namespace plimsoll::cli {

// bad_input for two questions at once, and for options that the question would not look at: nothing that was asked is left out silently.
void require_answers(const PlanOptions& options, const config::Run& run);

// How large a model of the run's proportions the cluster trains at the pace that was asked for, and how: simulated, not only estimated.
void say_largest(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks, const PlanOptions& options);

// How many nodes the run's model needs.
void say_smallest(const config::Run& run, const cluster::Cluster& cluster, bool json);

}  // namespace plimsoll::cli

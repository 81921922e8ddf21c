// A cluster by the name that --cluster gives it.
#pragma once

#include <string>

#include "cluster/cluster.h"
#include "config/run.h"
#include "io/file_system.h"

namespace plimsoll::train {

// A preset with a count of nodes ("dgx-h100:4"), the path of a .json file, or "this" machine, as it was measured or at a guess, with
// `ranks` ranks on it (0: as many as the run's strategy has).
cluster::Cluster open_cluster(io::FileSystem& file_system, const std::string& name, const config::Run& run, std::int64_t ranks = 0);

// This machine with `ranks` ranks on it, from its cores and memory alone: rates are those of ordinary machines, which tell strategies
// apart but not how long they take.
cluster::Cluster machine_at_a_guess(io::FileSystem& file_system, const config::Run& run, std::int64_t ranks);

// The run with what its limit of the device's memory leaves to arenas here, as training counts it (capacity_of). not_legal where that is
// nothing. `apart`: other processes ask the same, and must come to the same answer.
config::Run without_reserve(const config::Run& run, base::Bytes data_to_come, bool apart);

// What can go to the tier of the run's activations, or come back, in the time of one floating-point operation: bytes, by the cluster's
// rates; zero where it has none. That is what recompute and offload are weighed by.
double bytes_per_operation(const cluster::Cluster& cluster, const config::Run& run);

// The same of this machine, where it was measured and the choice depends on it; else zero.
double measured_link(io::FileSystem& file_system, const config::Run& run);

}  // namespace plimsoll::train

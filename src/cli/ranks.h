// How a command that trains becomes several ranks: threads of this process, processes under a supervisor, or one rank of those
// that mpirun or srun started.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "collectives/transport.h"
#include "config/run.h"

namespace plimsoll::cli {

// The ranks that were started together with this process; 0 when it was started by hand.
std::int64_t ranks_started();

// Whether this process was started by hand, or is the first of those that were started together: the one that says what concerns all.
bool is_first_process();

// Runs `body` as one rank, or as each of several; the transport is null when the run has one rank. Before `body` all ranks agree
// that they mean the same run. Does not return in a supervisor: it ends with the ranks' exit code.
void run_ranks(const config::Run& run, bool processes, const std::function<void(collectives::Transport*)>& body);

// Whether this process should report an error: where several ranks meet the same one, the first of them speaks for all.
bool speaks_for_all(base::ErrorKind kind);

}  // namespace plimsoll::cli

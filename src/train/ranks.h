// How one run becomes several ranks: threads of this process, processes under a supervisor, or one rank of those that mpirun, srun or
// torchrun started.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/agree.h"
#include "collectives/transport.h"
#include "config/run.h"

namespace plimsoll::train {

// The ranks that were started together with this process; 0 when it was started by hand.
std::int64_t ranks_started();

// What started them, as its user calls it: mpirun, srun or torchrun.
std::string launcher_name();

// Whether this process was started by hand, or is the first of those that were started together: the one that says what concerns all.
bool is_first_process();

struct RankedRun {
  const config::Run& run;
  bool trains = true;  // else its strategy is one without training (setup/forward_run.h), already found legal
  // The command that makes another process of this program join as a rank; empty: local ranks are threads.
  std::vector<std::string> processes = {};
  std::vector<collectives::Field> also = {};                   // beside the run's settings, what must be the same on all ranks
  std::function<void(const std::string& text)> complain = {};  // hears what ended the ranks that are processes,
                                                               // and which connections were refused
};

// Runs `body` as one rank, or as each of several; the transport is null when the run has one rank. Before `body` all ranks agree
// that they mean the same run. Does not return in a supervisor: it ends with the ranks' exit code.
void run_ranks(const RankedRun& ranked, const std::function<void(collectives::Transport*)>& body);

// What ended a rank that had met the others, and whether it is this one's to say.
class RankError : public base::Error {
 public:
  RankError(base::ErrorKind kind, const std::string& message, bool speaks) : Error(kind, message), speaks_(speaks) {}
  bool speaks() const { return speaks_; }

 private:
  bool speaks_;
};

// Whether this process should report an error that it met before it met other ranks: the first speaks for all, and another only
// where the first did not meet it.
bool speaks_for_all(base::ErrorKind kind);

// Before a process ends: others may wait for it at the address where ranks meet, and nobody else would tell them.
void tell_ranks_that_wait(const std::string& message);

// "rank 1: " where another process is the first.
std::string own_name();

// What an error says to the user.
std::string words_of(const std::exception& error);

}  // namespace plimsoll::train

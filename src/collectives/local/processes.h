// Ranks as processes of one machine under a supervisor: what `--processes` does. Slower to start than threads, but a rank that
// crashes, is killed or stops takes nobody down silently: the others name it and end with exit code 4.
//
//   if (!is_supervised()) std::exit(supervise({.ranks = 4, .command = {"/proc/self/exe", "train", "run.json"}}));
//   const std::unique_ptr<Transport> transport = join_processes();  // each rank
//
// Liveness: a thread of each rank gives a sign every 200 ms and looks at the others'; the supervisor looks too and reaps. A dead rank
// is known at once, a stopped one after Limits::heartbeat. Whoever has not ended `grace` seconds after the first loss is killed. When
// the supervisor itself dies, the kernel kills all ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/transport.h"

namespace plimsoll::collectives::local {

struct SuperviseOptions {
  int ranks = 1;
  std::vector<std::string> command{};      // program and arguments, the same for all ranks
  std::vector<std::string> environment{};  // "NAME=value", on top of this process's
  Limits limits{};
  double grace = 2.0;
  std::function<void(int rank, int process)> started{};  // told of each rank's process
  // Told once, in a sentence, which rank was lost first and why, and what kind of error that was.
  std::function<void(const std::string&, base::ErrorKind)> say{};
};

// Starts the ranks and waits for all of them; SIGINT and SIGTERM are passed on to them. Returns 0 when all ended well, otherwise the
// exit code of the first that did not, 4 when it was killed or hung.
int supervise(const SuperviseOptions& options);

// Whether this process was started by supervise().
bool is_supervised();
std::unique_ptr<Transport> join_processes();

}  // namespace plimsoll::collectives::local

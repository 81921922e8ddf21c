// Which rank this process is, by the variables that torchrun and its like set: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT;
// and PLIMSOLL_TOKEN, a secret of the job, where others can reach the port. Without one, the launcher's own name for the job (torchrun's,
// Slurm's, that of MPI's launcher) keeps jobs apart.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace plimsoll::collectives {

struct Launch {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  // which of its machine's devices
  std::string address = "127.0.0.1";
  int port = 29500;
  std::string token{};  // the same on all ranks of a job, so that strangers are turned away
  std::string build{};  // of this program: the same on all ranks
};

// Nothing when neither RANK nor WORLD_SIZE is set. Throws bad_input, naming the variable, when one is missing or out of range.
std::optional<Launch> launch_from_environment();
// The same with another source of variables, which gives null for one that is not set.
std::optional<Launch> launch_from(const std::function<const char*(const char*)>& variable);

}  // namespace plimsoll::collectives

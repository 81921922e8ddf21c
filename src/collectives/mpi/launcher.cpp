// Who started this process: launchers leave variables, whichever MPI we were built with.
#include <array>
#include <cstdlib>

#include "collectives/mpi/mpi.h"

namespace plimsoll::collectives::mpi {

std::optional<std::string> launched_by() {
  // Open MPI, MPICH and Slurm's PMI-2, PMIx. SLURM_PROCID alone is no sign: every program in a batch script has it.
  constexpr std::array kVariables{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"};
  for (const char* name : kVariables) {
    if (std::getenv(name) != nullptr) return name;
  }
  return std::nullopt;
}

}  // namespace plimsoll::collectives::mpi

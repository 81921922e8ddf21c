// Ranks as processes started by mpirun or srun, on one machine or many.
//
// MPI carries bytes; the order of sums is ours: members exchange pieces pairwise and each folds its share in member order, so the bits
// equal those of `local`. Debian's Open MPI cannot go on after a failure, so nobody tries: a rank that fails tells the others, all of
// them name it and end, and the launcher clears up. A rank that was killed is the launcher's to see; one that hangs is named after
// Limits::progress, one that is stopped or cut off after Limits::heartbeat (vigil.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "collectives/transport.h"

namespace plimsoll::collectives::mpi {

// Whether this program was built with MPI; if not, why.
std::optional<std::string> why_missing();

// The variable by which a launcher of MPI programs gave itself away ("OMPI_COMM_WORLD_SIZE"); nothing when started by hand.
std::optional<std::string> launched_by();

// Joins the ranks that were started together. Once in a process. Refuses when MPI is missing, or when the launcher belongs to another MPI.
std::unique_ptr<Transport> join(const Limits& limits = {});

}  // namespace plimsoll::collectives::mpi

// Stands in for transport.cpp where MPI was not found when Plimsoll was built.
#include "base/error.h"
#include "collectives/mpi/mpi.h"

namespace plimsoll::collectives::mpi {

namespace {
constexpr const char* kReason =
    "this plimsoll was built without MPI; install libopenmpi-dev and openmpi-bin (or MPICH) and build it again, or use --ranks N";
}

std::optional<std::string> why_missing() { return kReason; }

std::unique_ptr<Transport> join(const Limits&) { base::bad_input("{}", kReason); }

}  // namespace plimsoll::collectives::mpi

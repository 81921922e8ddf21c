#include "collectives/join_for_test.h"
#include "collectives/mpi/mpi.h"

namespace plimsoll::collectives::tests {

std::unique_ptr<Transport> join_for_test(const Limits& limits) { return mpi::join(limits); }

}  // namespace plimsoll::collectives::tests

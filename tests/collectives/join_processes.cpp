#include "collectives/join_for_test.h"
#include "collectives/local/processes.h"

namespace plimsoll::collectives::tests {

// The supervisor was told the limits.
std::unique_ptr<Transport> join_for_test(const Limits&) { return local::join_processes(); }

}  // namespace plimsoll::collectives::tests

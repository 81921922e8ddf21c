#include "collectives/join_for_test.h"
#include "collectives/local/processes.h"

namespace plimsoll::collectives::tests {

std::unique_ptr<Transport> join_for_test() { return local::join_processes(); }

}  // namespace plimsoll::collectives::tests

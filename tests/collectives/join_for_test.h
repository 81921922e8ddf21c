// How a test's rank joins the others: one source file for each kind of process.
#pragma once

#include <memory>

#include "collectives/transport.h"

namespace plimsoll::collectives::tests {

std::unique_ptr<Transport> join_for_test(const Limits& limits);

}  // namespace plimsoll::collectives::tests

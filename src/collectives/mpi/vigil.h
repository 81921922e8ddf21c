// Signs of life between ranks that MPI started. MPI itself says nothing of a rank whose machine or network is gone: sends wait for ever. So
// the ranks also meet at the first one's store (rendezvous.h), which names whoever dies, stops or is cut off.
#pragma once

#include <mpi.h>

#include <memory>

#include "collectives/rendezvous.h"

namespace plimsoll::collectives::mpi {

// Collective over the communicator. Nothing for one rank alone, and where some rank cannot reach the first one's machine but by MPI: then a
// lost rank is found by Limits::progress.
std::unique_ptr<Rendezvous> keep_vigil(MPI_Comm everybody, const Limits& limits);

}  // namespace plimsoll::collectives::mpi

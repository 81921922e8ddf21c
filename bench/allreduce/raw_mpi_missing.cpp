// Stands in for raw_mpi.cpp where MPI was not found.
#include "base/error.h"
#include "raw_mpi.h"

namespace plimsoll::bench {

RawMpi raw_mpi_all_reduce(std::int64_t, int, int) { base::bad_input("this program was built without MPI"); }

}  // namespace plimsoll::bench

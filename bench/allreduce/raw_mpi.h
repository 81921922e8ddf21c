// The peer inside our program: MPI_Allreduce itself, as MPI's own benchmarks call it.
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll::bench {

struct RawMpi {
  int rank = 0;
  int ranks = 1;
  std::vector<double> seconds;
};

RawMpi raw_mpi_all_reduce(std::int64_t bytes, int warmup, int steps);

}  // namespace plimsoll::bench

#include "raw_mpi.h"

#include <mpi.h>

namespace plimsoll::bench {

RawMpi raw_mpi_all_reduce(std::int64_t bytes, int warmup, int steps) {
  RawMpi result;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &result.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &result.ranks);
  std::vector<float> data(static_cast<std::size_t>(bytes) / sizeof(float), 0.0f);
  for (int step = 0; step < warmup + steps; ++step) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (step >= warmup) result.seconds.push_back(MPI_Wtime() - start);
  }
  MPI_Finalize();
  return result;
}

}  // namespace plimsoll::bench

// Collectives of ranks whose transport sees only host memory (threads, processes, MPI): through a copy on the host, but directly
// between arenas where all members are threads on one GPU. One order of sums for every way, so the bits are those of the
// processor's ranks.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <memory>
#include <vector>

#include "collectives/transport.h"
#include "executor/cuda/direct_exchange.h"
#include "kernels/cuda/kernel.h"
#include "plan/plan.h"

namespace plimsoll::executor {

class StagedCollectives {
 public:
  // One group for each axis with more than one rank; all ranks of a plan do this together.
  StagedCollectives(const plan::Plan& plan, std::int32_t rank, int device, collectives::Transport* transport);

  // Ranks meet on the host, so a program with collectives is not captured as a graph.
  void run(const ops::Collective& op, const kernels::cuda::Tensor& in, const kernels::cuda::Tensor& out, cudaStream_t stream);

 private:
  std::array<std::unique_ptr<collectives::Group>, 3> groups_;  // by axis
  std::array<std::unique_ptr<DirectExchange>, 3> direct_;      // null where memory is out of reach
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
};

}  // namespace plimsoll::executor

// Collectives of ranks whose transport sees only host memory (threads, processes, MPI): through a copy on the host. One order
// of sums for every transport, so the bits are those of the processor's ranks.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <memory>
#include <vector>

#include "collectives/transport.h"
#include "kernels/cuda/kernel.h"
#include "plan/plan.h"

namespace plimsoll::executor {

class StagedCollectives {
 public:
  // One group for each axis with more than one rank; all ranks of a plan do this together.
  StagedCollectives(const plan::Plan& plan, std::int32_t rank, collectives::Transport* transport);

  // Waits for the stream, so a program with collectives is not captured as a graph.
  void run(const ops::Collective& op, const kernels::cuda::Tensor& in, const kernels::cuda::Tensor& out, cudaStream_t stream);

 private:
  std::array<std::unique_ptr<collectives::Group>, 3> groups_;  // by axis
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
};

}  // namespace plimsoll::executor

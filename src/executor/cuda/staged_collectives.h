// Collectives of ranks on GPUs. A transport that sees only host memory (threads, processes, MPI) gets a copy on the host, but threads
// on one GPU exchange directly between arenas; there is one order of sums for every such way, so the bits are those of the processor's
// ranks. NCCL gets the tensors where they are.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <memory>
#include <vector>

#include "collectives/transport.h"
#include "executor/core/peers.h"
#include "executor/cuda/direct_exchange.h"
#include "kernels/cuda/kernel.h"
#include "plan/plan.h"

namespace plimsoll::executor {

class StagedCollectives {
 public:
  // All ranks of a plan do this together.
  StagedCollectives(const plan::Plan& plan, std::int32_t rank, int device, collectives::Transport* transport);

  // Ranks meet on the host, so a program with collectives is not captured as a graph.
  void run(const ops::Collective& op, const kernels::cuda::Tensor& in, const kernels::cuda::Tensor& out, cudaStream_t stream);

 private:
  Peers peers_;
  std::array<std::unique_ptr<DirectExchange>, ops::kAxes> direct_;  // by axis; null where memory is out of reach
  bool on_device_ = false;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
};

}  // namespace plimsoll::executor

// Collectives and messages of ranks on GPUs. A transport that sees only host memory (threads, processes, MPI) gets a copy on the host,
// but threads on one GPU reduce and gather directly between arenas; there is one order of sums for every such way, so the bits are
// those of the processor's ranks. NCCL gets the tensors where they are.
//
// Ranks meet on the host, so a program with either is not captured as a graph, and each of its streams is issued by a thread of its
// own: one that waits for another rank does not keep the others.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <vector>

#include "collectives/transport.h"
#include "executor/core/peers.h"
#include "executor/cuda/direct_exchange.h"
#include "kernels/cuda/kernel.h"
#include "plan/plan.h"

namespace plimsoll::executor {

class DevicePeers {
 public:
  // All ranks of a plan do this together.
  DevicePeers(const plan::Plan& plan, std::int32_t rank, int device, collectives::Transport* transport);

  // Memory on the host for what one stream has under way.
  struct Staging {
    std::vector<std::byte> in;
    std::vector<std::byte> out;
  };
  Staging make_staging() const;

  void run(const ops::Collective& op, const kernels::cuda::Tensor& in, const kernels::cuda::Tensor& out, Staging& staging,
           cudaStream_t stream);
  void run(const ops::Message& op, std::int32_t micro_batch, const kernels::cuda::Tensor& tensor, Staging& staging, cudaStream_t stream);

 private:
  Peers peers_;
  std::map<ops::Axis, std::unique_ptr<DirectExchange>> direct_;  // null where memory is out of reach
  bool on_device_ = false;
  std::size_t largest_ = 0;  // bytes of an operand
};

}  // namespace plimsoll::executor

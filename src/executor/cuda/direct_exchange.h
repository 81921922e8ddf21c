// Collectives of ranks that are threads of this process and share a GPU: they read and write each other's arenas, and no byte goes
// through the host. The ranks' threads meet in a collective to show each other where operands lie and to know what all have issued;
// the device waits by events, so nobody waits for the device.
//
// Sums are left folds in rank order as everywhere. Of an all-reduce each rank folds its share of the elements into everybody's result:
// no element is read by one rank and written by another, so it works in place.
#pragma once

#include <memory>
#include <vector>

#include "collectives/group.h"
#include "executor/cuda/handles.h"
#include "kernels/cuda/kernel.h"
#include "ops/op.h"

namespace plimsoll::executor {

class DirectExchange {
 public:
  // All members of the group call this together; null for all of them where some cannot reach another's memory so.
  static std::unique_ptr<DirectExchange> make(collectives::Group& group, int device);

  // Whether it does this collective; all members get the same answer.
  static bool takes(const ops::Collective& op, base::DType dtype);

  void run(const ops::Collective& op, const kernels::cuda::Tensor& in, const kernels::cuda::Tensor& out, cudaStream_t stream);

 private:
  // What a member shows the others.
  struct Offer {
    std::byte* in;
    std::byte* out;
    std::int64_t bytes;  // of `in`
    cudaEvent_t ready;   // its operands are
    cudaEvent_t done;    // its part of the work is
    ops::CollectiveKind kind;
  };

  explicit DirectExchange(collectives::Group& group);
  std::vector<Offer> show(const Offer& own) const;
  void work(const ops::Collective& op, const std::vector<Offer>& offers, const kernels::cuda::Tensor& in, const kernels::cuda::Tensor& out,
            cudaStream_t stream) const;

  collectives::Group& group_;
  Event ready_;
  Event done_;
};

}  // namespace plimsoll::executor

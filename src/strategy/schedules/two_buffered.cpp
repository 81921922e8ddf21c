// PipeDream-2BW: gradients of m >= p micro-batches make one update, and batch t computes with version t-1 on every rank, so that
// two buffers of weights are always enough: W(t+1) = W(t) - lr * gradient at W(t-1).
#include <algorithm>

#include "strategy/schedules/builders.h"
#include "strategy/schedules/continuous.h"

namespace plimsoll::strategy::schedules {

Schedule two_buffered(const Shape& shape) {
  return continuous("2bw", shape, [&](std::int64_t, std::int64_t micro_batch) {
    return std::max<std::int64_t>(micro_batch / shape.micro_batches - 1, 0);
  });
}

}  // namespace plimsoll::strategy::schedules

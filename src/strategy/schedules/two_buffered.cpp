// PipeDream-2BW: gradients of m >= p micro-batches make one update, and batch t computes with version t-1 on every rank, so that
// two buffers of weights are always enough: W(t+1) = W(t) - lr * gradient at W(t-1).
#include <algorithm>

#include "strategy/schedules/all.h"
#include "strategy/schedules/continuous.h"

namespace plimsoll::strategy::schedules {

namespace {

void one_batch_per_pipeline(const Shape& shape, std::vector<std::string>& reasons) {
  require_micro_batches(shape.ranks, "p", shape, reasons);
}

Schedule make_two_buffered(const Shape& shape) {
  return continuous("2bw", shape, [&](std::int64_t, std::int64_t micro_batch) {
    return std::max<std::int64_t>(micro_batch / shape.micro_batches - 1, 0);
  });
}

}  // namespace

Kind two_buffered() {
  return {.name = "2bw",
          .about = "no flush; weights one batch old",
          .asynchronous = true,
          .add_reasons = one_batch_per_pipeline,
          .make = make_two_buffered};
}

}  // namespace plimsoll::strategy::schedules

// 1F1B (PipeDream-Flush): rank r starts with p-r-1 forwards, then takes one forward and one backward by turns.
//
// As long as GPipe, but a micro-batch's backward comes as soon as it can, so rank r holds p-r micro-batches, not m.
#include <algorithm>

#include "strategy/schedules/all.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

namespace {

Schedule make_one_f_one_b(const Shape& shape) {
  return synchronous("1f1b", shape, [&](std::int64_t rank, Order& order) {
    const std::int64_t warm_up = std::min(shape.ranks - rank - 1, shape.micro_batches);
    one_forward_one_backward(
        warm_up, shape.micro_batches, [&](std::int64_t i) { order.add(Work::forward, rank, i); },
        [&](std::int64_t i) { order.add(Work::backward, rank, i); });
  });
}

}  // namespace

Kind one_f_one_b() {
  return {.name = kUsual,
          .about = "forward and backward by turns: fewer held",
          .bubble = "(p-1)/(m+p-1)",
          .searched = true,
          .holds = [](const Shape& shape, std::int64_t rank) { return at_most_all(shape.ranks - rank, shape); },
          .steady_from = [](const Shape& shape, std::int64_t rank) { return at_most_all(shape.ranks - rank, shape) + 1; },
          .make = make_one_f_one_b};
}

}  // namespace plimsoll::strategy::schedules

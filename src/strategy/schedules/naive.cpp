// Naive model parallelism: one micro-batch at a time through all stages and back. One rank works, p-1 wait; little memory and
// nothing to get wrong, which makes it the reference for the others.
#include "strategy/schedules/all.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

namespace {

Schedule make_naive(const Shape& shape) {
  return synchronous("naive", shape, [&](std::int64_t rank, Order& order) {
    for (std::int64_t i = 0; i < shape.micro_batches; ++i) {
      order.add(Work::forward, rank, i);
      order.add(Work::backward, rank, i);
    }
  });
}

}  // namespace

Kind naive() { return {.name = "naive", .about = "one micro-batch at a time, the others wait", .bubble = "(p-1)/p", .make = make_naive}; }

}  // namespace plimsoll::strategy::schedules

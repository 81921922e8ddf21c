// Zero bubble, H2: more forwards first than H1 and weight gradients up to 2r behind, so that with equal times no rank ever waits:
// every rank works 3m without a gap, each starting one forward later than the rank before.
//
// That is worth having only if ranks do not wait for each other at the end: each updates its weights by itself, which no global
// norm or loss scale may forbid. Holds up to 2p-1 micro-batches, twice H1's.
#include "strategy/schedules/builders.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

Schedule zb_h2(const Shape& shape) {
  const std::int64_t m = shape.micro_batches;
  Schedule schedule = synchronous("zb-h2", shape, [&](std::int64_t rank, Order& order) {
    std::int64_t forwards = 0;
    std::int64_t inputs = 0;
    std::int64_t weights = 0;
    while (forwards < 2 * (shape.ranks - rank) - 1) order.add(Work::forward, rank, forwards++);
    while (inputs < m) {
      const bool last_forward_done = forwards == m;
      order.add(Work::backward_input, rank, inputs++);
      if (last_forward_done || inputs - weights > 2 * rank) order.add(Work::backward_weight, rank, weights++);
      if (!last_forward_done) order.add(Work::forward, rank, forwards++);
    }
    while (weights < m) order.add(Work::backward_weight, rank, weights++);
  });
  schedule.barrier = false;
  return schedule;
}

}  // namespace plimsoll::strategy::schedules

// Zero bubble, H2: more forwards first than H1 and weight gradients up to 2r behind, so that with equal times no rank ever waits:
// every rank works 3m without a gap, each starting one forward later than the rank before.
//
// That is worth having only if ranks do not wait for each other at the end: each updates its weights by itself, which no global
// norm or loss scale may forbid, and goes on with the next batch. Of several batches in a row each computes with the weights that the one
// before has left, as if they were apart; only the first rank's start and the last one's end are idle, once for all of them. Holds up to
// 2p-1 micro-batches, twice H1's.
#include "strategy/schedules/all.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

namespace {

void full_start(const Shape& shape, std::vector<std::string>& reasons) {
  require_micro_batches(2 * shape.ranks - 1, "2p-1", shape, reasons);
}

Schedule make_zb_h2(const Shape& shape) {
  const std::int64_t m = shape.micro_batches;
  Schedule schedule{.name = "zb-h2", .shape = shape, .barrier = false, .ranks = {}};
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    Order order;
    for (std::int64_t batch = 0; batch < shape.batches; ++batch) {
      std::int64_t forwards = 0;
      std::int64_t inputs = 0;
      std::int64_t weights = 0;
      const auto add = [&](Work work, std::int64_t& next) { order.add(work, rank, batch * m + next++, batch); };
      while (forwards < 2 * (shape.ranks - rank) - 1) add(Work::forward, forwards);
      while (inputs < m) {
        const bool last_forward_done = forwards == m;
        add(Work::backward_input, inputs);
        if (last_forward_done || inputs - weights > 2 * rank) add(Work::backward_weight, weights);
        if (!last_forward_done) add(Work::forward, forwards);
      }
      while (weights < m) add(Work::backward_weight, weights);
      order.update(batch + 1);
    }
    schedule.ranks.push_back(order.take());
  }
  return schedule;
}

}  // namespace

Kind zb_h2() {
  return {.name = "zb-h2",
          .about = "weight gradients fill all of it; more held",
          .splits_backward = true,
          .barrier_free = true,
          .searched = true,
          .holds = [](const Shape& shape, std::int64_t) { return at_most_all(2 * shape.ranks - 1, shape); },
          .add_reasons = full_start,
          .make = make_zb_h2};
}

}  // namespace plimsoll::strategy::schedules

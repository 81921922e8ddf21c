// Zero bubble, H1: the backward in two, input gradients at once for the stage before, weight gradients where 1F1B would wait.
//
// Rank r lets r weight gradients wait behind their input gradients, which fills its idle time at the end. With equal times of the
// three parts a step takes 3m + p-1; every rank holds p micro-batches.
#include <algorithm>

#include "strategy/schedules/all.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

namespace {

Schedule make_zb_h1(const Shape& shape) {
  const std::int64_t m = shape.micro_batches;
  return synchronous("zb-h1", shape, [&](std::int64_t rank, Order& order) {
    std::int64_t forwards = 0;
    std::int64_t inputs = 0;
    std::int64_t weights = 0;
    while (forwards < std::min(shape.ranks - rank - 1, m)) order.add(Work::forward, rank, forwards++);
    while (inputs < m) {
      const bool last_forward_done = forwards == m;
      if (!last_forward_done) order.add(Work::forward, rank, forwards++);
      order.add(Work::backward_input, rank, inputs++);
      if (last_forward_done || inputs - weights > rank) order.add(Work::backward_weight, rank, weights++);
    }
    while (weights < m) order.add(Work::backward_weight, rank, weights++);
  });
}

}  // namespace

Kind zb_h1() {
  return {.name = "zb-h1",
          .about = "weight gradients fill some of the bubble",
          .bubble = "(p-1)/(3m+p-1)",
          .splits_backward = true,
          .searched = true,
          .holds = [](const Shape& shape, std::int64_t) { return at_most_all(shape.ranks, shape); },
          .make = make_zb_h1};
}

}  // namespace plimsoll::strategy::schedules

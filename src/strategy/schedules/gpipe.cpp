// GPipe: all forwards, then all backwards, last micro-batch first as the paper draws it.
//
// Time m+p-1 of (forward + backward); every rank holds all m micro-batches at once. Gradients are added in falling order of
// micro-batches, so sums differ from the other schedules by rounding.
#include "strategy/schedules/all.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

namespace {

Schedule make_gpipe(const Shape& shape) {
  return synchronous("gpipe", shape, [&](std::int64_t rank, Order& order) {
    for (std::int64_t i = 0; i < shape.micro_batches; ++i) order.add(Work::forward, rank, i);
    for (std::int64_t i = shape.micro_batches; i-- > 0;) order.add(Work::backward, rank, i);
  });
}

}  // namespace

Kind gpipe() {
  return {.name = "gpipe",
          .about = "all forwards, then all backwards",
          .bubble = "(p-1)/(m+p-1)",
          .holds = [](const Shape& shape, std::int64_t) { return shape.micro_batches; },
          .steady_from = [](const Shape&, std::int64_t) { return kNever; },
          .make = make_gpipe};
}

}  // namespace plimsoll::strategy::schedules

// GPipe: all forwards, then all backwards, last micro-batch first as the paper draws it.
//
// Time m+p-1 of (forward + backward); every rank holds all m micro-batches at once. Gradients are added in falling order of
// micro-batches, so sums differ from the other schedules by rounding.
#include "strategy/schedules/builders.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

Schedule gpipe(const Shape& shape) {
  return synchronous("gpipe", shape, [&](std::int64_t rank, Order& order) {
    for (std::int64_t i = 0; i < shape.micro_batches; ++i) order.add(Work::forward, rank, i);
    for (std::int64_t i = shape.micro_batches; i-- > 0;) order.add(Work::backward, rank, i);
  });
}

}  // namespace plimsoll::strategy::schedules

// How the files of this folder write a rank's order down.
#pragma once

#include <vector>

#include "strategy/schedules/schedule.h"

namespace plimsoll::strategy::schedules {

class Order {
 public:
  Item& add(Work work, std::int64_t stage, std::int64_t micro_batch, std::int64_t version = 0) {
    items_.push_back({.work = work,
                      .stage = static_cast<std::int32_t>(stage),
                      .micro_batch = static_cast<std::int32_t>(micro_batch),
                      .version = static_cast<std::int32_t>(version)});
    return items_.back();
  }
  void update(std::int64_t version) { add(Work::update, kNone, kNone, version); }
  std::vector<Item> take() { return std::move(items_); }

 private:
  std::vector<Item> items_;
};

// Runs `write(rank, order)` for each rank and ends each order with the step's one update.
template <typename Write>
Schedule synchronous(std::string_view name, const Shape& shape, const Write& write) {
  Schedule schedule{.name = std::string(name), .shape = shape, .ranks = {}};
  schedule.ranks.reserve(static_cast<std::size_t>(shape.ranks));
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    Order order;
    write(rank, order);
    order.update(1);
    schedule.ranks.push_back(order.take());
  }
  return schedule;
}

// The heart of 1F1B: `warm_up` forwards, then one forward and one backward by turns, then the backwards that are left. Pieces are
// numbered 0 to `count` - 1 in both directions.
template <typename Forward, typename Backward>
void one_forward_one_backward(std::int64_t warm_up, std::int64_t count, const Forward& forward, const Backward& backward) {
  for (std::int64_t k = 0; k < warm_up; ++k) forward(k);
  for (std::int64_t k = 0; k + warm_up < count; ++k) {
    forward(k + warm_up);
    backward(k);
  }
  for (std::int64_t k = count - warm_up; k < count; ++k) backward(k);
}

}  // namespace plimsoll::strategy::schedules

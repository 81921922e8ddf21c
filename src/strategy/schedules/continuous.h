// What the schedules without a flush share: 1F1B over all batches, an update after each batch's last backward, and a rule that
// says which version a micro-batch uses on a rank.
#pragma once

#include <algorithm>

#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

inline std::int64_t forwards_ahead(const Shape& shape, std::int64_t rank) {
  return std::min(shape.ranks - rank - 1, shape.all_micro_batches());
}

// Updates that the rank has made when the forward of `micro_batch` starts: 1F1B has then done that many backwards less its lead.
inline std::int64_t newest_version(const Shape& shape, std::int64_t rank, std::int64_t micro_batch) {
  return std::max<std::int64_t>(micro_batch - forwards_ahead(shape, rank), 0) / shape.micro_batches;
}

template <typename VersionOf>
Schedule continuous(std::string_view name, const Shape& shape, const VersionOf& version_of) {
  Schedule schedule{.name = std::string(name), .shape = shape, .barrier = false, .ranks = {}};
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    Order order;
    one_forward_one_backward(
        forwards_ahead(shape, rank), shape.all_micro_batches(),
        [&](std::int64_t i) { order.add(Work::forward, rank, i, version_of(rank, i)); },
        [&](std::int64_t i) {
          order.add(Work::backward, rank, i, version_of(rank, i));
          if ((i + 1) % shape.micro_batches == 0) order.update((i + 1) / shape.micro_batches);
        });
    schedule.ranks.push_back(order.take());
  }
  return schedule;
}

}  // namespace plimsoll::strategy::schedules

// DualPipe (DeepSeek-V3): micro-batches enter at both ends. Every stage exists twice, on rank s for those going up and on rank
// p-1-s for those going down; a forward of one direction and a backward of the other run as one piece, so that the messages of
// each hide behind the work of the other.
//
// Words: `near` is the direction that starts at this half's end of the ranks, `far` the other; q counts ranks from that end.
// Bubble (p/2-1)(F&B + B - 3W) while such a pair is one piece, weights twice, up to p+1 activations.
#include <algorithm>
#include <array>
#include <deque>

#include <fmt/format.h>

#include "strategy/schedules/all.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

namespace {

class DualRank {
 public:
  DualRank(const Shape& shape, std::int64_t rank)
      : p_(shape.ranks), half_(shape.micro_batches / 2), rank_(rank), lower_(rank < shape.ranks / 2) {}

  std::vector<Item> take();

 private:
  enum Side : std::size_t { near, far };

  // The n-th piece of a side: the near ones of the lower half go up the ranks.
  Item& add(Work work, Side side, std::int64_t n) {
    const bool up = (side == near) == lower_;
    return order_.add(work, up ? rank_ : p_ - 1 - rank_, up ? n : half_ + n);
  }
  void forward(Side side) { add(Work::forward, side, forwards_[side]++); }
  void backward(Side side) { add(Work::backward, side, backwards_[side]++); }
  void backward_input(Side side) {
    waiting_.emplace_back(side, backwards_[side]);
    add(Work::backward_input, side, backwards_[side]++);
  }
  void backward_weight() {
    const auto [side, n] = waiting_.front();
    waiting_.pop_front();
    add(Work::backward_weight, side, n);
  }
  void pair(Side forward_side, Side backward_side) {
    add(Work::forward, forward_side, forwards_[forward_side]++).joined = true;
    backward(backward_side);
  }
  void last_backwards(std::int64_t q);

  std::int64_t p_;
  std::int64_t half_;  // micro-batches of one direction
  std::int64_t rank_;
  bool lower_;
  Order order_;
  std::array<std::int64_t, 2> forwards_{};
  std::array<std::int64_t, 2> backwards_{};
  std::deque<std::pair<Side, std::int64_t>> waiting_;  // weight gradients that are not computed yet
};

// The second half of these leaves its weight gradients for later, so that the other ranks get their gradients sooner.
void DualRank::last_backwards(std::int64_t q) {
  for (std::int64_t k = 0; k < 2 * (q + 1); ++k) {
    const Side side = k % 2 == 0 ? far : near;
    if (k < q + 1) {
      backward(side);
    } else {
      backward_input(side);
    }
  }
}

std::vector<Item> DualRank::take() {
  const std::int64_t q = std::min(rank_, p_ - 1 - rank_);
  const std::int64_t to_middle = p_ / 2 - q - 1;
  for (std::int64_t k = 0; k < 2 * to_middle; ++k) forward(near);
  for (std::int64_t k = 0; k < q + 1; ++k) {
    forward(near);
    forward(far);
  }
  for (std::int64_t k = 0; k < to_middle; ++k) {
    backward_input(far);
    backward_weight();
    forward(far);
  }
  for (std::int64_t k = 0; k < half_ - p_ + q + 1; ++k) {
    if (k == 0 && to_middle == 0) {  // apart, the middle ranks can send sooner
      forward(near);
      backward(far);
    } else {
      pair(near, far);
    }
    pair(far, near);
  }
  for (std::int64_t k = 0; k < to_middle; ++k) {
    backward(far);
    pair(far, near);
  }
  last_backwards(q);
  for (std::int64_t k = 0; k < to_middle; ++k) {
    backward_weight();
    backward_input(near);
  }
  while (!waiting_.empty()) backward_weight();
  return order_.take();
}

void two_directions(const Shape& shape, std::vector<std::string>& reasons) {
  if (shape.ranks % 2 != 0) {
    reasons.push_back(fmt::format("found {} pipeline rank{}, expected an even count; the nearest is {}", shape.ranks,
                                  shape.ranks == 1 ? "" : "s",
                                  shape.ranks == 1 ? "2" : fmt::format("{} or {}", shape.ranks - 1, shape.ranks + 1)));
  }
  if (shape.micro_batches % 2 != 0) {
    reasons.push_back(fmt::format("found {} micro-batches, expected an even count, half for each direction; the nearest is {}",
                                  shape.micro_batches, shape.micro_batches + 1));
  }
  require_micro_batches(2 * shape.ranks, "2p", shape, reasons);
}

Schedule make_dualpipe(const Shape& shape) {
  Schedule schedule = synchronous("dualpipe", shape, [&](std::int64_t rank, Order& order) {
    for (const Item& item : DualRank(shape, rank).take()) order.add(item.work, item.stage, item.micro_batch).joined = item.joined;
  });
  schedule.placement = Placement::both_ways;
  return schedule;
}

}  // namespace

Kind dualpipe() {
  return {.name = "dualpipe",
          .about = "from both ends, weights twice; drawn, not run",
          .bubble = "(p-2)/(3m+p-2)",
          .splits_backward = true,
          .drawn_only = true,
          .add_reasons = two_directions,
          .make = make_dualpipe};
}

}  // namespace plimsoll::strategy::schedules

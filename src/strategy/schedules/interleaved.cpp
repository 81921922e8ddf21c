// Interleaved 1F1B (Megatron-LM): each rank holds v chunks, chunk c of rank r being stage c p + r.
//
// Micro-batches go in groups of p: a group passes all chunks before the next group starts. The k-th forward is therefore
// (group, chunk, member) read as digits of k, and the k-th backward the same with chunks in reverse. Bubbles shrink by v,
// messages grow by v, and rank r holds 2(p-r-1) + (v-1)p + 1 chunks.
#include <fmt/format.h>

#include "strategy/schedules/all.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

namespace {

void groups_of_ranks(const Shape& shape, std::vector<std::string>& reasons) {
  if (shape.chunks == 1) {
    reasons.push_back("found \"chunks\": 1, expected at least 2 stages per rank; use \"chunks\": 2, or \"schedule\": \"1f1b\"");
  }
  const std::int64_t below = shape.micro_batches / shape.ranks * shape.ranks;
  if (shape.micro_batches == below) return;
  const std::string nearest = below > 0 ? fmt::format("{} or {}", below, below + shape.ranks) : fmt::format("{}", shape.ranks);
  reasons.push_back(fmt::format("found {} micro-batches, expected a multiple of the {} pipeline ranks; the nearest is {}",
                                shape.micro_batches, shape.ranks, nearest));
}

std::int64_t warm_up_of(const Shape& shape, std::int64_t rank) {
  return at_most_all(2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * shape.ranks, shape);
}

Schedule make_interleaved(const Shape& shape) {
  const std::int64_t p = shape.ranks;
  const std::int64_t v = shape.chunks;
  const std::int64_t count = shape.micro_batches * v;
  return synchronous("interleaved", shape, [&](std::int64_t rank, Order& order) {
    const auto add = [&](Work work, std::int64_t k) {
      const std::int64_t chunk = k / p % v;
      const std::int64_t micro_batch = k / (p * v) * p + k % p;
      order.add(work, (work == Work::forward ? chunk : v - 1 - chunk) * p + rank, micro_batch);
    };
    one_forward_one_backward(
        warm_up_of(shape, rank), count, [&](std::int64_t k) { add(Work::forward, k); }, [&](std::int64_t k) { add(Work::backward, k); });
  });
}

}  // namespace

Kind interleaved() {
  return {.name = "interleaved",
          .about = "1f1b over chunks: less bubble, more messages",
          .bubble = "(p-1)/(vm+p-1)",
          .chunked = true,
          .searched = true,
          .holds = [](const Shape& shape, std::int64_t rank) { return at_most_all(warm_up_of(shape, rank) + 1, shape); },
          .add_reasons = groups_of_ranks,
          .make = make_interleaved};
}

}  // namespace plimsoll::strategy::schedules

// Interleaved 1F1B (Megatron-LM): each rank holds v chunks, chunk c of rank r being stage c p + r.
//
// Micro-batches go in groups of p: a group passes all chunks before the next group starts. The k-th forward is therefore
// (group, chunk, member) read as digits of k, and the k-th backward the same with chunks in reverse. Bubbles shrink by v,
// messages grow by v, and rank r holds 2(p-r-1) + (v-1)p + 1 chunks.
#include <algorithm>

#include "strategy/schedules/builders.h"
#include "strategy/schedules/order.h"

namespace plimsoll::strategy::schedules {

Schedule interleaved(const Shape& shape) {
  const std::int64_t p = shape.ranks;
  const std::int64_t v = shape.chunks;
  const std::int64_t count = shape.micro_batches * v;
  return synchronous("interleaved", shape, [&](std::int64_t rank, Order& order) {
    const auto add = [&](Work work, std::int64_t k) {
      const std::int64_t chunk = k / p % v;
      const std::int64_t micro_batch = k / (p * v) * p + k % p;
      order.add(work, (work == Work::forward ? chunk : v - 1 - chunk) * p + rank, micro_batch);
    };
    const std::int64_t warm_up = std::min(2 * (p - rank - 1) + (v - 1) * p, count);
    one_forward_one_backward(
        warm_up, count, [&](std::int64_t k) { add(Work::forward, k); }, [&](std::int64_t k) { add(Work::backward, k); });
  });
}

}  // namespace plimsoll::strategy::schedules

#include "data/batch_share.h"

#include "base/error.h"

namespace plimsoll::data {

SampleRange range_of(const BatchShare& share, std::int64_t cursor, std::int64_t micro_batch) {
  PLIMSOLL_CHECK(share.micro > 0 && share.ranks > 0 && share.global > 0 && share.global % (share.ranks * share.micro) == 0,
                 "{} samples over {} ranks in micro-batches of {}", share.global, share.ranks, share.micro);
  PLIMSOLL_CHECK(share.rank >= 0 && share.rank < share.ranks, "rank {} of {}", share.rank, share.ranks);
  PLIMSOLL_CHECK(micro_batch >= 0 && micro_batch < share.micro_batches(), "micro-batch {} of {}", micro_batch, share.micro_batches());
  return {cursor + share.rank * (share.global / share.ranks) + micro_batch * share.micro, share.micro};
}

std::function<SampleRange(const SampleRange&)> reading_order(const BatchShare& share, std::int64_t origin) {
  return [share, origin](const SampleRange& current) {
    const std::int64_t done = current.first - origin;
    const std::int64_t step = done / share.global;
    const std::int64_t within_share = done % share.global - share.rank * (share.global / share.ranks);
    const std::int64_t next = within_share / share.micro + 1;
    const std::int64_t cursor = origin + step * share.global;
    return next < share.micro_batches() ? range_of(share, cursor, next) : range_of(share, cursor + share.global, 0);
  };
}

}  // namespace plimsoll::data

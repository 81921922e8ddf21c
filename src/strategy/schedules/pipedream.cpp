// PipeDream: 1F1B that never flushes. Each rank updates its weights as soon as it has the gradients of a batch, and a backward
// uses the version that its own forward used (weight stashing), so a gradient is that of weights the rank once had.
//
// In the paper a batch is one micro-batch (m = 1). Rank r then computes with weights that are p-r-1 updates old and keeps p-r
// versions. With m > 1 gradients of m micro-batches are added before an update, and fewer versions exist at a time.
#include "strategy/schedules/all.h"
#include "strategy/schedules/continuous.h"

namespace plimsoll::strategy::schedules {

namespace {

Schedule make_pipedream(const Shape& shape) {
  return continuous("pipedream", shape,
                    [&](std::int64_t rank, std::int64_t micro_batch) { return newest_version(shape, rank, micro_batch); });
}

}  // namespace

Kind pipedream() {
  return {.name = "pipedream", .about = "no flush; a backward's weights are kept for it", .asynchronous = true, .make = make_pipedream};
}

}  // namespace plimsoll::strategy::schedules

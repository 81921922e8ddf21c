// PipeDream with vertical sync: the version that is newest on rank 0 when a micro-batch enters goes with it, so that all stages
// use the same one. That is SGD with gradients p-1 updates old (for m = 1), at the price of p versions on every rank.
#include "strategy/schedules/all.h"
#include "strategy/schedules/continuous.h"

namespace plimsoll::strategy::schedules {

namespace {

Schedule make_pipedream_vsync(const Shape& shape) {
  return continuous("pipedream-vsync", shape,
                    [&](std::int64_t, std::int64_t micro_batch) { return newest_version(shape, 0, micro_batch); });
}

}  // namespace

Kind pipedream_vsync() {
  return {
      .name = "pipedream-vsync", .about = "as pipedream, one version in all stages", .asynchronous = true, .make = make_pipedream_vsync};
}

}  // namespace plimsoll::strategy::schedules

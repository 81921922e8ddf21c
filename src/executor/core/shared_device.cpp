#include "executor/core/shared_device.h"

#include <algorithm>

#include "executor/core/backend.h"

namespace plimsoll::executor {

base::Bytes passing_bytes(std::span<const plan::Plan* const> plans, std::int32_t rank, plan::Tier tier) {
  base::Bytes most{0};
  for (const plan::Plan* plan : plans) {
    const plan::RankClass& rank_class = plan::class_of(*plan, rank);
    most = std::max(most, rank_class.arena[static_cast<std::size_t>(tier)] - plan::kept_bytes(rank_class, tier));
  }
  return most;
}

std::unique_ptr<SharedDevice> Backend::share(std::span<const plan::Plan* const> plans, std::int32_t) const {
  base::not_legal("{} plans cannot share a device of the backend \"{}\", whose executors hold all of their memory; run one at a time",
                  plans.size(), name());
}

}  // namespace plimsoll::executor

#include "train/nearest_fit.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "strategy/legality.h"

namespace plimsoll::train {

namespace {

using strategy::Recompute;
using strategy::Strategy;
using strategy::TierShare;

struct Change {
  std::string words;
  std::function<void(Strategy&)> make;
};

// A device holds some tiles of weights and gradients at once, and what is computed with them.
constexpr std::int64_t kTilesOnDevice = 16;
constexpr std::int64_t kLeastTile = 64 * 1024;

void put_all(Strategy& strategy, const TierShare& share) {
  strategy.recompute = Recompute::full;
  strategy.offload = {.optimizer = share, .gradients = share, .params = share, .activations = strategy.offload.activations};
}

// Where a device is smaller than its largest weight, tiles of it.
std::vector<Change> changes_to_tiles(base::Bytes device) {
  const base::Bytes tile{std::max(kLeastTile, device.count / kTilesOnDevice / kLeastTile * kLeastTile)};
  const auto change = [&](std::string_view tier, const TierShare& share) {
    return Change{
        fmt::format(
            R"("recompute": "full", "prefetch": 1, "bucket": "4MB", "tile": {}, "offload": {{"optimizer": "{}", "gradients": "{}", "params": "{}"}})",
            tile.count, tier, tier, tier),
        [=](Strategy& strategy) {
          put_all(strategy, share);
          strategy.prefetch = 1;
          strategy.bucket = base::Bytes{4'000'000};
          strategy.tile = tile;
        }};
  };
  return {change("host", {.host = 1.0}), change("disk", {.disk = 1.0})};
}

// From a little more arithmetic to everything on disk.
std::vector<Change> changes() {
  const TierShare host{.host = 1.0};
  const TierShare disk{.disk = 1.0};
  return {
      {R"("recompute": "selective")", [](Strategy& strategy) { strategy.recompute = Recompute::selective; }},
      {R"("recompute": "full")", [](Strategy& strategy) { strategy.recompute = Recompute::full; }},
      {R"("offload": {"optimizer": "host"})", [=](Strategy& strategy) { strategy.offload.optimizer = host; }},
      {R"("recompute": "full", "offload": {"optimizer": "host"})",
       [=](Strategy& strategy) {
         strategy.recompute = Recompute::full;
         strategy.offload.optimizer = host;
       }},
      {R"("recompute": "full", "offload": {"optimizer": "host", "gradients": "host", "params": "host"})",
       [=](Strategy& strategy) { put_all(strategy, host); }},
      {R"("recompute": "full", "offload": {"optimizer": "disk"})",
       [=](Strategy& strategy) {
         strategy.recompute = Recompute::full;
         strategy.offload.optimizer = disk;
       }},
      {R"("recompute": "full", "prefetch": 1, "bucket": "4MB", "offload": {"optimizer": "disk", "gradients": "disk", "params": "disk"})",
       [=](Strategy& strategy) {
         put_all(strategy, disk);
         strategy.prefetch = 1;
         strategy.bucket = base::Bytes{4'000'000};
       }}};
}

std::string needs(const plan::Plan& plan) {
  std::string text = base::to_string(plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)]) + " of the device";
  for (const plan::Tier tier : {plan::Tier::host, plan::Tier::disk}) {
    const base::Bytes bytes = plan::arena_of_all(plan, tier);
    if (bytes.count > 0) text += fmt::format(", {} of the {}", base::to_string(bytes), plan::name_of(tier));
  }
  return text;
}

}  // namespace

std::string nearest_fit(const SessionOptions& options, const Capacity& capacity) {
  std::vector<Change> all = changes();
  for (Change& change : changes_to_tiles(capacity.device - capacity.reserve)) all.push_back(std::move(change));
  for (const Change& change : all) {
    SessionOptions changed = options;
    changed.strategy.recompute_every = 1;
    changed.strategy.recompute_memory = 0.0;
    change.make(changed.strategy);
    if (changed.strategy == options.strategy || !strategy::reasons_against(changed.strategy).empty()) continue;
    try {
      const plan::Plan plan = plan_session(changed);
      if (!why_too_large(plan, capacity))
        return fmt::format("With {} in \"strategy\" it would fit: {} for a rank's and all ranks' arenas.", change.words, needs(plan));
    } catch (const base::Error&) {  // a strategy that this model or number of micro-batches does not allow
    }
  }
  return "Use a smaller \"batch.micro\" or \"batch.sequence\", \"precision\": \"bf16\", or a smaller model.";
}

}  // namespace plimsoll::train

#include "train/nearest_fit.h"

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
       [=](Strategy& strategy) {
         strategy.recompute = Recompute::full;
         strategy.offload = {.optimizer = host, .gradients = host, .params = host, .activations = strategy.offload.activations};
       }},
      {R"("recompute": "full", "offload": {"optimizer": "disk"})",
       [=](Strategy& strategy) {
         strategy.recompute = Recompute::full;
         strategy.offload.optimizer = disk;
       }},
      {R"("recompute": "full", "prefetch": 1, "bucket": "4MB", "offload": {"optimizer": "disk", "gradients": "disk", "params": "disk"})",
       [=](Strategy& strategy) {
         strategy.recompute = Recompute::full;
         strategy.prefetch = 1;
         strategy.bucket = base::Bytes{4'000'000};
         strategy.offload = {.optimizer = disk, .gradients = disk, .params = disk, .activations = strategy.offload.activations};
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
  for (const Change& change : changes()) {
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

#include "train/nearest_fit.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "graph/training.h"
#include "lowering/rows.h"
#include "strategy/legality.h"

namespace plimsoll::train {

namespace {

using strategy::Recompute;
using strategy::Strategy;
using strategy::TierShare;

constexpr base::Bytes kMega{1'000'000};
constexpr base::Bytes kSmallBucket{4 * kMega.count};
constexpr double kMostPieces = 8192.0;

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
            R"("recompute": "full", "prefetch": 1, "tile": {}, "offload": {{"optimizer": "{}", "gradients": "{}", "params": "{}"}})",
            tile.count, tier, tier, tier),
        [=](Strategy& strategy) {
          put_all(strategy, share);
          strategy.prefetch = 1;
          strategy.bucket = kSmallBucket;
          strategy.tile = tile;
        }};
  };
  return {change("host", {.host = 1.0}), change("disk", {.disk = 1.0})};
}

// From a little more arithmetic to everything on disk.
std::vector<Change> changes() {
  const TierShare host{.host = 1.0};
  const TierShare disk{.disk = 1.0};
  return {{R"("recompute": "selective")", [](Strategy& strategy) { strategy.recompute = Recompute::selective; }},
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
          {R"("recompute": "full", "prefetch": 1, "offload": {"optimizer": "disk", "gradients": "disk", "params": "disk"})",
           [=](Strategy& strategy) {
             put_all(strategy, disk);
             strategy.prefetch = 1;
             strategy.bucket = kSmallBucket;
           }}};
}

// What lies somewhere from step to step, all ranks together and each value once.
struct States {
  double weights = 0.0;
  double optimizer = 0.0;
};

States states_of(const SessionOptions& options) {
  const graph::Graph graph = graph::training_graph(options.forward, options.training);
  // What is on disk whatever else is done needs no other place.
  const bool rows = options.strategy.embedding_rows == strategy::EmbeddingRows::disk;
  const graph::Parameter* apart = rows ? lowering::token_table(graph) : nullptr;
  States states;
  for (const graph::Parameter& parameter : graph.parameters) {
    if (&parameter == apart) continue;
    states.weights += static_cast<double>(graph.values[parameter.weight].type.bytes());
    if (parameter.master != parameter.weight) states.optimizer += static_cast<double>(graph.values[parameter.master].type.bytes());
    for (graph::ValueId state : parameter.states) states.optimizer += static_cast<double>(graph.values[state].type.bytes());
  }
  return states;
}

// By what has to lie where whatever else is done: a plan that it refuses need not be made. Nor need one of too many tiles.
bool may_fit(const Strategy& strategy, const States& states, const Capacity& capacity) {
  if (strategy.tile.count > 0 && states.weights > kMostPieces * static_cast<double>(strategy.tile.count)) return false;
  const TierShare& weights = strategy.offload.params;
  const TierShare& optimizer = strategy.offload.optimizer;
  const double host = weights.host * states.weights + optimizer.host * states.optimizer;
  const double disk = weights.disk * states.weights + optimizer.disk * states.optimizer;
  const auto holds = [](base::Bytes limit, double bytes) { return bytes <= static_cast<double>(limit.count); };
  if ((capacity.host.count > 0 && !holds(capacity.host, host)) || (capacity.disk.count > 0 && !holds(capacity.disk, disk))) return false;
  const double device = states.weights + states.optimizer - host - disk;
  return holds(capacity.device - capacity.reserve, capacity.per_rank ? device / static_cast<double>(strategy.ranks()) : device + host);
}

// Enough of them that each is small beside what is updated, and few enough that the plan is made in a second.
base::Bytes bucket_for(const Strategy& strategy, const States& states) {
  const double away = states.weights + states.optimizer;
  const base::Bytes even{static_cast<std::int64_t>(away / kMostPieces)};
  return even <= strategy.bucket ? strategy.bucket : base::round_up(even, kMega);
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
  const States states = states_of(options);
  for (const Change& change : all) {
    SessionOptions changed = options;
    changed.strategy.recompute_every = 1;
    changed.strategy.recompute_memory = 0.0;
    change.make(changed.strategy);
    if (changed.strategy == options.strategy || !strategy::reasons_against(changed.strategy).empty()) continue;
    if (!may_fit(changed.strategy, states, capacity)) continue;
    std::string words = change.words;
    if (changed.strategy.offload.optimizer.anything()) changed.strategy.bucket = bucket_for(changed.strategy, states);
    if (changed.strategy.bucket != options.strategy.bucket)
      words += fmt::format(R"(, "bucket": "{}MB")", changed.strategy.bucket.count / kMega.count);
    try {
      const plan::Plan plan = plan_session(changed);
      if (!why_too_large(plan, capacity))
        return fmt::format("With {} in \"strategy\" it would fit: {} for a rank's and all ranks' arenas.", words, needs(plan));
    } catch (const base::Error&) {  // a strategy that this model or number of micro-batches does not allow
    }
  }
  const bool wide = options.training.precision == model::Precision::f32;
  return fmt::format("Use a smaller \"batch.micro\" or \"batch.sequence\"{}, or a smaller model.", wide ? R"(, "precision": "bf16")" : "");
}

}  // namespace plimsoll::train

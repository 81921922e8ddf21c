#include "train/setup/nearest_fit.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "executor/cpu/cpu_backend.h"
#include "graph/programs/programs.h"
#include "io/posix_file_system.h"
#include "lowering/rows.h"
#include "storage/disk/block_store.h"
#include "strategy/dimension.h"
#include "strategy/forward.h"
#include "strategy/legality.h"
#include "train/machine/process_memory.h"

namespace plimsoll::train {

namespace {

using strategy::Recompute;
using strategy::Strategy;
using strategy::TierShare;

constexpr base::Bytes kMega{1'000'000};
constexpr base::Bytes kSmallBucket{4 * kMega.count};
constexpr base::Bytes kLeastBucket{kMega.count};
constexpr double kMostPieces = 8192.0;
// Weights that are elsewhere come for every micro-batch: a plan of more such calls takes gigabytes and most of a minute to make.
constexpr double kMostFetches = 4 * kMostPieces;

using Change = std::function<void(Strategy&)>;

// A device holds some tiles of weights and gradients at once, and what is computed with them: so many, or more of smaller ones.
constexpr std::int64_t kTilesOnDevice[] = {16, 128};
constexpr std::int64_t kLeastTile = 64 * 1024;

void put_all(Strategy& strategy, const TierShare& share) {
  strategy.recompute = Recompute::full;
  strategy.offload = {.optimizer = share, .gradients = share, .params = share, .activations = strategy.offload.activations};
}

void move_little(Strategy& strategy, base::Bytes bucket) {
  strategy.prefetch = std::min<std::int64_t>(strategy.prefetch, 1);
  strategy.bucket = std::min(strategy.bucket, bucket);
}

// Where a device is smaller than its largest weight, tiles of it.
std::vector<Change> changes_to_tiles(base::Bytes device) {
  std::vector<Change> changes;
  for (const TierShare& share : {TierShare{.host = 1.0}, TierShare{.disk = 1.0}}) {
    for (const std::int64_t tiles : kTilesOnDevice) {
      const base::Bytes tile{std::max(kLeastTile, device.count / tiles / kLeastTile * kLeastTile)};
      changes.emplace_back([=](Strategy& strategy) {
        put_all(strategy, share);
        move_little(strategy, kLeastBucket);
        strategy.tile = strategy.tile.count > 0 ? std::min(strategy.tile, tile) : tile;
      });
    }
  }
  return changes;
}

// From a little more arithmetic to everything on disk.
std::vector<Change> changes() {
  const TierShare host{.host = 1.0};
  const TierShare disk{.disk = 1.0};
  return {[](Strategy& strategy) { strategy.recompute = Recompute::selective; },
          [](Strategy& strategy) { strategy.recompute = Recompute::full; },
          [=](Strategy& strategy) { strategy.offload.optimizer = host; },
          [=](Strategy& strategy) {
            strategy.recompute = Recompute::full;
            strategy.offload.optimizer = host;
          },
          [=](Strategy& strategy) { put_all(strategy, host); },
          [=](Strategy& strategy) {
            put_all(strategy, host);
            move_little(strategy, kLeastBucket);
          },
          [=](Strategy& strategy) {
            strategy.recompute = Recompute::full;
            strategy.offload.optimizer = disk;
          },
          [=](Strategy& strategy) {
            put_all(strategy, disk);
            move_little(strategy, kSmallBucket);
          }};
}

// What lies somewhere from step to step, all ranks together and each value once.
struct States {
  double weights = 0.0;
  double optimizer = 0.0;
  double blocks = 0.0;  // among which the weights are
};

States states_of(const SessionOptions& options) {
  const graph::Graph graph =
      options.train ? graph::training_graph(options.forward, options.training) : graph::inference_graph(options.forward, options.training);
  // What is on disk whatever else is done needs no other place.
  const bool rows = options.strategy.embedding_rows == strategy::EmbeddingRows::disk;
  const graph::Parameter* apart = rows ? lowering::token_table(graph) : nullptr;
  States states{.blocks = static_cast<double>(graph.blocks.size())};
  for (const graph::Parameter& parameter : graph.parameters) {
    if (&parameter == apart) continue;
    states.weights += static_cast<double>(graph.values[parameter.weight].type.bytes());
    if (parameter.master != parameter.weight) states.optimizer += static_cast<double>(graph.values[parameter.master].type.bytes());
    for (graph::ValueId state : parameter.states) states.optimizer += static_cast<double>(graph.values[state].type.bytes());
  }
  return states;
}

// A plan of so many tiles or fetches is too long to be made only to be told of.
bool is_short(const Strategy& strategy, const States& states, std::int32_t micro_batches) {
  const double tiles = strategy.tile.count > 0 ? states.weights / static_cast<double>(strategy.tile.count) : 0.0;
  const double fetches = strategy.offload.params.anything() ? std::max(tiles, states.blocks) * micro_batches : 0.0;
  return tiles <= kMostPieces && fetches <= kMostFetches;
}

// By what has to lie where whatever else is done: a plan that it refuses need not be made.
bool may_fit(const Strategy& strategy, const States& states, const Capacity& capacity) {
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

// The plan of many ranks takes seconds and gigabytes to make. Its outline is a fraction of that, and needs no more memory than the plan.
bool outline_too_large(const SessionOptions& changed, const Capacity& capacity) {
  if (changed.strategy.ranks() == 1 || changed.strategy.own_degrees()) return false;
  return why_too_large(outline_session(changed), capacity).has_value();
}

// On the processor, what lies beside the arenas was measured for the plan that does not fit. The process that makes the other one may take
// a little more, and a disk tier has buffers. What plans of many small pieces take themselves is known once they have been made.
Capacity capacity_for(const Strategy& changed, const Strategy& given, Capacity capacity) {
  constexpr base::Bytes kOtherPlan{1ll << 20};
  capacity.reserve += kOtherPlan;
  if (uses_disk(changed) && !uses_disk(given))
    capacity.reserve += base::Bytes{storage::disk::BlockStoreOptions{}.lanes * storage::disk::BlockStore::kBlock};
  return capacity;
}

std::string words_of(const TierShare& share) {
  if (share.host == 1.0) return R"("host")";
  if (share.disk == 1.0) return R"("disk")";
  return share.anything() ? fmt::format(R"({{"host": {}, "disk": {}}})", share.host, share.disk) : R"("none")";
}

// As a run file says it, with whatever is not as it was: who writes that into the strategy has what was tried. All of `offload`, so that it
// may take the place of the other or go into it.
std::string words_of(const Strategy& changed, const Strategy& given) {
  std::vector<std::string> words;
  const auto say = [&](bool other, std::string_view key, std::string value) {
    if (other) words.push_back(fmt::format("\"{}\": {}", key, value));
  };
  say(changed.recompute != given.recompute, "recompute", fmt::format("\"{}\"", strategy::name_of(changed.recompute)));
  say(changed.recompute_every != given.recompute_every, "recompute_every", fmt::format("{}", changed.recompute_every));
  say(changed.recompute_memory != given.recompute_memory, "recompute_memory", fmt::format("{}", changed.recompute_memory));
  say(changed.prefetch != given.prefetch, "prefetch", fmt::format("{}", changed.prefetch));
  say(changed.tile != given.tile, "tile", fmt::format("{}", changed.tile.count));
  std::vector<std::string> shares;
  for (const auto& [key, share] : {std::pair{"optimizer", &changed.offload.optimizer},
                                   {"gradients", &changed.offload.gradients},
                                   {"params", &changed.offload.params},
                                   {"activations", &changed.offload.activations}}) {
    if (share->anything()) shares.push_back(fmt::format("\"{}\": {}", key, words_of(*share)));
  }
  say(!(changed.offload == given.offload), "offload", fmt::format("{{{}}}", fmt::join(shares, ", ")));
  say(changed.bucket != given.bucket, "bucket", fmt::format("\"{}MB\"", changed.bucket.count / kMega.count));
  return fmt::format("{}", fmt::join(words, ", "));
}

// Throws where the drive does not have the room. Where no folder is given, that is for whoever names one.
void check_drive(const SessionOptions& options, const plan::Plan& plan) {
  const base::Bytes disk = plan::arena_of_all(plan, plan::Tier::disk);
  if (disk.count == 0 || options.disk_folder.empty()) return;
  io::PosixFileSystem here;
  storage::disk::check_folder(options.file_system != nullptr ? *options.file_system : here, options.disk_folder, disk);
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

namespace {

struct Fit {
  Strategy strategy;
  std::string needs;     // what it needs where
  bool nowhere = false;  // it has something on disk, and no folder is given
};

// As these options would have it: where nothing is trained, a change is what it does to weights.
Strategy changed_strategy(const SessionOptions& options, const Change& change) {
  Strategy changed = options.strategy;
  change(changed);
  if (!options.train) return strategy::without_training(changed);
  if (changed.recompute == Recompute::full) changed.recompute_every = 1;
  if (changed.recompute != Recompute::optimal) changed.recompute_memory = 0.0;
  return changed;
}

bool is_legal(const Strategy& strategy, const SessionOptions& options) {
  return !options.train || strategy::reasons_against(strategy, options.micro_batches).empty();
}

std::optional<Fit> find_fit(const SessionOptions& options, const Capacity& capacity) {
  std::vector<Change> all = changes();
  for (Change& change : changes_to_tiles(capacity.device - capacity.reserve)) all.push_back(std::move(change));
  const States states = states_of(options);
  const bool processor = options.backend == nullptr || options.backend->name() == executor::cpu_backend().name();
  const bool measured = processor && capacity.reserve.count > 0;
  const base::Bytes before = process_memory();
  for (const Change& change : all) {
    SessionOptions changed = options;
    changed.strategy = changed_strategy(options, change);
    // What the search for an order takes beside the arenas is known once it has been made.
    if (changed.strategy.recompute == Recompute::optimal && measured) continue;
    if (changed.strategy == options.strategy || !is_legal(changed.strategy, options)) continue;
    Capacity there = measured ? capacity_for(changed.strategy, options.strategy, capacity) : capacity;
    if (!is_short(changed.strategy, states, options.micro_batches) || !may_fit(changed.strategy, states, there)) continue;
    if (changed.strategy.offload.optimizer.anything()) changed.strategy.bucket = bucket_for(changed.strategy, states);
    try {
      if (outline_too_large(changed, there)) continue;
      const plan::Plan plan = plan_session(changed);
      if (measured) there.reserve += std::max(base::Bytes{}, process_memory() - before);
      if (why_too_large(plan, there)) continue;
      check_drive(options, plan);
      const bool nowhere = options.disk_folder.empty() && plan::arena_of_all(plan, plan::Tier::disk).count > 0;
      return Fit{changed.strategy, needs(plan), nowhere};
    } catch (const base::Error&) {  // a strategy that this model, number of micro-batches or drive does not allow
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<strategy::Strategy> nearest_strategy(const SessionOptions& options, const Capacity& capacity) {
  const std::optional<Fit> fit = find_fit(options, capacity);
  return fit && !fit->nowhere ? std::optional(fit->strategy) : std::nullopt;
}

std::string nearest_fit(const SessionOptions& options, const Capacity& capacity) {
  if (const std::optional<Fit> fit = find_fit(options, capacity)) {
    return fmt::format("With {} in \"strategy\"{} it would fit: {} for a rank's and all ranks' arenas.",
                       words_of(fit->strategy, options.strategy), fit->nowhere ? " and a folder in \"limits.disk_path\"" : "", fit->needs);
  }
  const bool wide = options.training.precision == model::Precision::f32;
  return fmt::format("Use a smaller \"batch.micro\" or \"batch.sequence\"{}, or a smaller model.", wide ? R"(, "precision": "bf16")" : "");
}

}  // namespace plimsoll::train

#include "planner/finer.h"

#include <algorithm>

namespace plimsoll::planner {

namespace {

using strategy::Recompute;
using strategy::Strategy;

constexpr std::int64_t kTileStep = 64 * 1024;  // bytes, and the smallest that is worth a kernel
constexpr std::int64_t kMostTiles = 1024;      // of a weight (strategy/legality)
constexpr std::int64_t kTilesOnDevice[] = {4, 8, 16, 32};
constexpr std::int64_t kLarger[] = {2, 4, 8, 64};  // tiles than now
constexpr std::int64_t kEvery[] = {1, 2, 4, 8};

struct UnderWay {
  Bytes bucket;
  std::int64_t prefetch;
};
constexpr UnderWay kUnderWay[] = {{Bytes{25'000'000}, 2}, {Bytes{4'000'000}, 1}, {Bytes{1'000'000}, 1}, {Bytes{1'000'000}, 0}};

class Finer {
 public:
  Finer(const Problem& problem, const Space& space, const Pins& pins, const Choice& choice)
      : problem_(problem), space_(space), pins_(pins), choice_(choice) {}

  std::vector<Choice> run() {
    // Smaller pieces make room for larger tiles, and the other way round.
    for (const Bytes tile : tiles()) {
      for (const UnderWay& pieces : under_way()) {
        add([&](Strategy& strategy) {
          strategy.tile = tile;
          strategy.bucket = pieces.bucket;
          strategy.prefetch = pieces.prefetch;
        });
      }
    }
    if (!pins_.recompute) add_groups();
    return std::move(found_);
  }

 private:
  template <typename Change>
  void add(const Change& change) {
    Choice other = choice_;
    change(other.strategy);
    if (other != choice_ && std::find(found_.begin(), found_.end(), other) == found_.end()) found_.push_back(std::move(other));
  }

  std::vector<Bytes> tiles() const {
    const Bytes now = choice_.strategy.tile;
    std::vector<Bytes> found{now};
    if (pins_.tile || !choice_.strategy.offload.params.anything()) return found;
    const auto add = [&](Bytes tile) {
      tile = tile < problem_.largest ? std::max(tile, least_tile(problem_)) : Bytes{};
      if (std::find(found.begin(), found.end(), tile) == found.end()) found.push_back(tile);
    };
    if (now.count == 0) {
      for (const std::int64_t tiles : kTilesOnDevice) add(tile_for(problem_, tiles));
    } else {
      for (const std::int64_t times : kLarger) add(now * times);
      add(Bytes{now.count / 2 / kTileStep * kTileStep});
    }
    return found;
  }

  std::vector<UnderWay> under_way() const {
    const Strategy& now = choice_.strategy;
    std::vector<UnderWay> found{{now.bucket, now.prefetch}};
    if (!pins_.pieces && (now.offload != strategy::Offload{} || now.zero == 3))
      found.insert(found.end(), std::begin(kUnderWay), std::end(kUnderWay));
    return found;
  }

  void add_groups() {
    const std::vector<Recompute>& kinds = space_.recompute;
    if (std::find(kinds.begin(), kinds.end(), Recompute::full) == kinds.end()) return;
    for (const std::int64_t every : kEvery) {
      if (every >= problem_.layers) return;
      add([&](Strategy& strategy) {
        strategy.recompute = Recompute::full;
        strategy.recompute_every = every;
      });
    }
  }

  const Problem& problem_;
  const Space& space_;
  const Pins& pins_;
  const Choice& choice_;
  std::vector<Choice> found_;
};

}  // namespace

std::vector<Choice> finer(const Problem& problem, const Space& space, const Pins& pins, const Choice& choice) {
  return Finer(problem, space, pins, choice).run();
}

std::vector<Choice> plain(const Problem& problem, const Space& space, const Pins& pins, const Choice& choice) {
  std::vector<Choice> found;
  const auto add = [&](const strategy::Offload& offload, Bytes tile) {
    for (const Recompute kind : space.recompute) {
      for (const std::int64_t every : kEvery) {
        const bool groups = kind == Recompute::full && !pins.recompute;
        if (every > 1 && (!groups || every >= problem.layers)) break;
        Choice other = choice;
        other.strategy.offload = offload;
        other.strategy.tile = tile;
        other.strategy.recompute = kind;
        if (!pins.recompute) other.strategy.recompute_every = every;
        if (!pins.pieces) {
          other.strategy.bucket = space.rest.bucket;
          other.strategy.prefetch = space.rest.prefetch;
        }
        if (other != choice) found.push_back(std::move(other));
      }
    }
  };
  const strategy::Offload& given = space.rest.offload;
  for (const Tier optimizer : space.optimizer) {
    for (const Tier params : space.params) {
      for (const Tier gradients : space.gradients) {
        for (const Tier activations : space.activations) {
          const strategy::Offload offload{.optimizer = Space::share_of(optimizer, given.optimizer),
                                          .gradients = Space::share_of(gradients, given.gradients),
                                          .params = Space::share_of(params, given.params),
                                          .activations = Space::share_of(activations, given.activations)};
          for (const Bytes tile : space.tile) {
            if (tile == space.tile.front() || offload.params.anything()) add(offload, tile);
          }
        }
      }
    }
  }
  return found;
}

Bytes least_tile(const Problem& problem) {
  return Bytes{std::max(kTileStep, (problem.largest.count / kMostTiles + kTileStep - 1) / kTileStep * kTileStep)};
}

Bytes tile_for(const Problem& problem, std::int64_t on_device) {
  return std::max(least_tile(problem), Bytes{problem.device.count / on_device / kTileStep * kTileStep});
}

}  // namespace plimsoll::planner

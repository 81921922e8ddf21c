#include "planner/leanest.h"

#include <algorithm>

#include "planner/finer.h"
#include "strategy/schedules/table.h"

namespace plimsoll::planner {

namespace {

using strategy::Recompute;
using strategy::Strategy;

// Of the device's memory, what a tile may be where large weights are computed with in parts.
constexpr std::int64_t kTilesOfLeanest[] = {8, 16, 128, 1024};

// Times the device's memory, beyond which no estimate is so wrong.
constexpr std::int64_t kHopeless = 4;

// What is under way at once.
struct Pieces {
  Bytes bucket;
  std::int64_t prefetch;
};
constexpr Pieces kPieces[] = {{Bytes{25'000'000}, 0}, {Bytes{4'000'000}, 1}, {Bytes{1'000'000}, 0}};

// The last of the tiers that is no farther than this one.
Tier within(const std::vector<Tier>& tiers, Tier farthest) {
  Tier found = tiers.front();
  for (const Tier tier : tiers) found = tier <= farthest ? tier : found;
  return found;
}

class Leanest {
 public:
  Leanest(Estimator& estimator, const Space& space, const Pins& pins)
      : estimator_(estimator), problem_(estimator.problem()), space_(space), pins_(pins) {}

  std::vector<Lean> run() {
    Space shapes = space_;
    shapes.micro = {space_.micro.front()};
    if (!pins_.schedule) shapes.schedule = {std::string(strategy::schedules::kUsual)};
    // With less of a block made again less of it is there at once, and where activations leave nothing need be. An order that is fitted to
    // the memory lies beside what is found.
    if (!pins_.recompute) shapes.recompute = {Recompute::none, Recompute::selective, Recompute::full};
    shapes.visit_shapes(problem_, [&](const Choice& shape) { add_shape(shape); });
    std::stable_sort(found_.begin(), found_.end(), [](const Lean& a, const Lean& b) { return a.bounds.device < b.bounds.device; });
    return std::move(found_);
  }

 private:
  void add_shape(const Choice& shape) {
    Choice choice = shape;
    Strategy& strategy = choice.strategy;
    if (strategy.data > 1) {
      strategy.zero = space_.zero.back();
      strategy.keep_grads = strategy.zero < 2 || space_.keep_grads.back();
      strategy.keep_params = strategy.zero == 3 && space_.keep_params.front();
      if (pins_.zero_group) strategy.zero_group = *pins_.zero_group;
    }
    strategy.embedding_rows = space_.rows.back();
    for (const Tier tier : {Tier::host, Tier::disk}) {
      const strategy::Offload before = strategy.offload;
      strategy::Offload& offload = strategy.offload;
      const strategy::Offload& given = space_.rest.offload;
      const auto there = [&](const std::vector<Tier>& tiers, const strategy::TierShare& share) {
        return Space::share_of(within(tiers, tier), share);
      };
      offload = {.optimizer = there(space_.optimizer, given.optimizer),
                 .gradients = there(space_.gradients, given.gradients),
                 .params = there(space_.params, given.params),
                 .activations = there(space_.activations, given.activations)};
      // Between the stages of a pipeline activations are wanted again too soon.
      if (strategy.pipe > 1 && !pins_.activations) offload.activations = {};
      if (tier == Tier::host || offload != before) add_pieces(choice);
    }
  }

  void add_pieces(const Choice& choice) {
    add_parts(choice);
    if (pins_.pieces) return;
    for (const Pieces& pieces : kPieces) {
      Choice smaller = choice;
      smaller.strategy.bucket = std::min(choice.strategy.bucket, pieces.bucket);
      smaller.strategy.prefetch = std::min(choice.strategy.prefetch, pieces.prefetch);
      add_parts(smaller);
    }
  }

  // Activations that all tensor ranks have, and weights, in parts.
  void add_parts(const Choice& choice) {
    add(choice);
    Choice parts = choice;
    if (choice.strategy.tensor > 1 && choice.strategy.recompute == Recompute::full && !choice.strategy.sequence_parallel) {
      parts.strategy.split_activations = true;
      add(parts);
    }
    if (!choice.strategy.offload.params.anything() || pins_.tile) return;
    for (const std::int64_t tiles : kTilesOfLeanest) {
      parts.strategy.tile = tile_for(problem_, tiles);
      if (parts.strategy.tile < problem_.largest) add(parts);
    }
  }

  void add(const Choice& choice) {
    if (!estimator_.reason_against(choice).empty()) return;
    const Bounds bounds = estimator_.bounds(choice);
    if (bounds.device <= problem_.device * kHopeless) found_.push_back({choice, bounds});
  }

  Estimator& estimator_;
  const Problem& problem_;
  const Space& space_;
  const Pins& pins_;
  std::vector<Lean> found_;
};

}  // namespace

std::vector<Lean> leanest(Estimator& estimator, const Space& space, const Pins& pins) { return Leanest(estimator, space, pins).run(); }

}  // namespace plimsoll::planner

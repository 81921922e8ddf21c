#include "lowering/tiers.h"

#include "lowering/fetch_weights.h"
#include "lowering/offload.h"
#include "lowering/store_activations.h"
#include "lowering/store_gradients.h"

namespace plimsoll::lowering {

namespace {

// Copies of what leaves that may be under way while computation goes on, on each stream.
constexpr std::size_t kCopiesInFlight = 1;

plan::Tier tier_of(const strategy::TierShare& share) { return share.disk > 0.0 ? plan::Tier::disk : plan::Tier::host; }

// What a copy takes to slower tiers, or an update's results to faster ones, is not waited for by whoever made it.
bool leaves(const Piece& piece) {
  return piece.stream == plan::StreamKind::host_out || piece.stream == plan::StreamKind::disk_out ||
         (piece.stream == plan::StreamKind::host_in && piece.phase == graph::Phase::update);
}

}  // namespace

graph::Graph to_slower_tiers(graph::Graph graph, const strategy::Strategy& strategy, std::int32_t micro_batches,
                             const RecomputeOrder& again) {
  const strategy::Offload& offload = strategy.offload;
  if (offload.activations.anything()) {
    graph = store_activations(graph, {.tier = tier_of(offload.activations),
                                      .prefetch = strategy.prefetch,
                                      .stages = strategy.pipe > 1,
                                      .share = offload.activations.host + offload.activations.disk,
                                      .blocks = again.leaving});
  }
  graph::verify(graph, "storing activations");
  if (offload.gradients.anything()) graph = store_gradients(graph, tier_of(offload.gradients), micro_batches);
  graph::verify(graph, "storing gradients");
  if (offload.params.anything())
    graph = fetch_weights(graph, {.tier = tier_of(offload.params), .prefetch = strategy.prefetch, .stages = strategy.pipe > 1});
  graph::verify(graph, "fetching weights");
  if (offload.optimizer.anything()) graph = offload_optimizer(graph, tier_of(offload.optimizer), strategy.bucket);
  graph::verify(graph, "moving the update");
  return graph;
}

void LeavingCopies::before(const Piece& piece) {
  for (const auto& [kind, moments] : moments_) {
    if (piece.stream == plan::StreamKind::compute && moments.size() > kCopiesInFlight)
      streams_.settle(kind, moments[moments.size() - 1 - kCopiesInFlight]);
  }
  if (leaves(piece)) moments_[piece.stream].push_back(streams_.moments());
}

}  // namespace plimsoll::lowering

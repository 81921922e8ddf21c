#include "lowering/tiers.h"

#include <algorithm>

#include "lowering/fetch_weights.h"
#include "lowering/offload.h"
#include "lowering/square_early.h"
#include "lowering/store_activations.h"
#include "lowering/store_gradients.h"
#include "lowering/versions.h"
#include "strategy/schedules/csv.h"
#include "strategy/schedules/table.h"

namespace plimsoll::lowering {

namespace {

// Groups of an update whose results may be on their way while the next one's operands come.
constexpr std::size_t kGroupsUnderWay = 1;

plan::Tier tier_of(const strategy::TierShare& share) { return share.disk > 0.0 ? plan::Tier::disk : plan::Tier::host; }

// What a copy takes to slower tiers, or an update's results to faster ones, is not waited for by whoever made it; nor is the update.
bool leaves(const Piece& piece) {
  return piece.stream == plan::StreamKind::host_out || piece.stream == plan::StreamKind::disk_out ||
         (piece.stream == plan::StreamKind::host_compute && piece.turn != graph::Turn::first) ||
         (piece.stream == plan::StreamKind::host_in && (piece.phase == graph::Phase::update || piece.turn == graph::Turn::last));
}

bool has_update(const graph::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const graph::Node& node) { return node.phase == graph::Phase::update; });
}

}  // namespace

graph::Graph to_slower_tiers(graph::Graph graph, const strategy::Strategy& strategy, std::int32_t micro_batches,
                             const RecomputeOrder& again, bool host_beside) {
  const strategy::Offload& offload = strategy.offload;
  const bool stages = strategy.pipe > 1;
  const bool under_backward = updates_under_backward(graph, strategy);
  if (offload.activations.anything()) {
    graph = store_activations(graph, {.tier = tier_of(offload.activations),
                                      .prefetch = strategy.prefetch,
                                      .stages = stages,
                                      .share = offload.activations.host + offload.activations.disk,
                                      .blocks = again.leaving});
  }
  graph::verify(graph, "storing activations");
  if (has_update(graph) && (offload.gradients.anything() || under_backward || graph.pending.valid())) graph = square_early(graph);
  graph::verify(graph, "squaring early");
  if (offload.gradients.anything())
    graph = store_gradients(graph, {.tier = tier_of(offload.gradients), .micro_batches = micro_batches, .stages = stages});
  graph::verify(graph, "storing gradients");
  if (offload.params.anything())
    graph = fetch_weights(graph, {.tier = tier_of(offload.params), .prefetch = strategy.prefetch, .stages = stages});
  graph::verify(graph, "fetching weights");
  if (offload.optimizer.anything()) {
    graph = offload_optimizer(
        graph,
        {.share = offload.optimizer, .bucket = strategy.bucket, .under_backward = under_backward, .beside = host_beside, .stages = stages});
  }
  graph::verify(graph, "moving the update");
  return graph;
}

bool updates_under_backward(const graph::Graph& graph, const strategy::Strategy& strategy) {
  if (!strategy.offload.optimizer.anything() || needs_verdict(graph) || !has_update(graph)) return false;
  if (strategy.pipe == 1) return true;
  return !strategy.schedule.ends_with(strategy::schedules::kCsvSuffix) && !strategy::schedules::find_kind(strategy.schedule).asynchronous;
}

std::string update_note(const graph::Graph& graph, const strategy::Strategy& strategy) {
  if (!strategy.offload.optimizer.anything() || !has_update(graph)) return "";
  if (graph.pending.valid()) return "the host updates with the gradients of the step before, while the device computes the next ones";
  if (updates_under_backward(graph, strategy)) return "the host updates under the backward pass, behind each block";
  if (needs_verdict(graph)) {
    return "the host updates behind the backward pass: clipping and loss scaling wait for all gradients (\"clip\": 0 without fp16 does "
           "not)";
  }
  return "the host updates behind the backward pass: micro-batches under way use other versions of the weights";
}

void LeavingCopies::before(const Piece& piece) {
  if (piece.stream == plan::StreamKind::compute) {
    for (auto& [kind, line] : lines_) {
      if (line.since == line.moments.size()) continue;
      if (line.since > 0) streams_.settle(kind, line.moments[line.since - 1]);
      line.since = line.moments.size();
    }
  }
  if (leaves(piece)) lines_[piece.stream].moments.push_back(streams_.moments());
}

bool LeavingCopies::must_pause(const Piece& piece) const {
  const bool brings =
      piece.phase == graph::Phase::update && (piece.stream == plan::StreamKind::host_out || piece.stream == plan::StreamKind::disk_in);
  return brings && std::any_of(lines_.begin(), lines_.end(),
                               [](const auto& line) { return line.second.moments.size() > line.second.since + kGroupsUnderWay; });
}

void LeavingCopies::pause() {
  for (auto& [kind, line] : lines_) {
    if (line.moments.size() <= line.since + kGroupsUnderWay) continue;
    line.since = line.moments.size() - kGroupsUnderWay;
    streams_.settle(kind, line.moments[line.since - 1]);
  }
}

}  // namespace plimsoll::lowering

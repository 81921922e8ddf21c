// What a schedule's orders hold and send; counted along each rank's order, so it does not depend on times.
#include <algorithm>

#include "strategy/schedules/simulate.h"

namespace plimsoll::strategy::schedules {

namespace {

// Live activations along one order. A micro-batch stays until the last part of its backward; its activations are there from the
// forward, or from the recompute if there is one.
struct LivePeaks {
  std::int64_t live = 0;
  std::int64_t full = 0;
};

LivePeaks live_peaks(const std::vector<Item>& items, const std::vector<bool>& recomputed, std::int64_t micro_batches) {
  LivePeaks now;
  LivePeaks peak;
  for (const Item& item : items) {
    if (item.work == Work::update) continue;
    const auto pair = static_cast<std::size_t>(item.stage * micro_batches + item.micro_batch);
    if (item.work == Work::forward) {
      ++now.live;
      ++now.full;
    } else if (item.work == Work::recompute) {
      ++now.full;
    }
    peak = {std::max(peak.live, now.live), std::max(peak.full, now.full)};
    if (item.work == Work::forward && recomputed[pair]) --now.full;  // only its input is kept
    if (item.work == Work::backward || item.work == Work::backward_weight) {
      --now.live;
      --now.full;
    }
  }
  return peak;
}

// A version lives from the update that makes it to its last use, or to the next update, which overwrites it.
std::int64_t most_versions(const std::vector<Item>& items, std::int64_t batches) {
  const auto count = static_cast<std::size_t>(batches) + 1;
  std::vector<std::size_t> born(count, items.size());
  std::vector<std::size_t> dies(count, 0);
  born[0] = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto version = static_cast<std::size_t>(items[i].version);
    if (items[i].work == Work::update) {
      born[version] = i;
      dies[version - 1] = std::max(dies[version - 1], i);
    } else {
      dies[version] = std::max(dies[version], i + 1);
    }
  }
  std::vector<std::int64_t> change(items.size() + 1, 0);
  for (std::size_t version = 0; version < count && born[version] < items.size(); ++version) {
    ++change[born[version]];
    const bool newest = version + 1 == count || born[version + 1] == items.size();
    if (!newest) --change[std::max(dies[version], born[version])];
  }
  std::int64_t alive = 0;
  std::int64_t most = 1;
  for (std::int64_t difference : change) most = std::max(most, alive += difference);
  return most;
}

std::int64_t sends(const Schedule& schedule, const Item& item) {
  const bool up = item.work == Work::forward;
  if (!up && !is_backward(item.work)) return 0;
  const std::int32_t to = item.stage + (up ? 1 : -1);
  if (to < 0 || to >= schedule.shape.stages()) return 0;
  return schedule.rank_of(to, item.micro_batch) == schedule.rank_of(item.stage, item.micro_batch) ? 0 : 1;
}

}  // namespace

Figures figures(const Schedule& schedule, const Timeline& timeline) {
  const std::int64_t micro_batches = schedule.shape.all_micro_batches();
  std::vector<bool> recomputed(static_cast<std::size_t>(schedule.shape.stages() * micro_batches));
  for (const std::vector<Item>& items : schedule.ranks) {
    for (const Item& item : items) {
      if (item.work == Work::recompute) recomputed[static_cast<std::size_t>(item.stage * micro_batches + item.micro_batch)] = true;
    }
  }
  Figures all{.makespan = timeline.makespan, .peak_live = {}, .peak_full = {}, .versions = {}, .messages = {}};
  double busy = 0.0;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<Item>& items = schedule.ranks[rank];
    const LivePeaks peaks = live_peaks(items, recomputed, micro_batches);
    all.peak_live.push_back(peaks.live);
    all.peak_full.push_back(peaks.full);
    all.versions.push_back(most_versions(items, schedule.shape.batches));
    std::int64_t sent = 0;
    for (const Item& item : items) sent += sends(schedule, item);
    all.messages.push_back(sent);
    busy += timeline.busy(rank);
    const std::vector<Span>& spans = timeline.ranks[rank];
    if (!spans.empty()) all.period = std::max(all.period, spans.back().end - spans.front().start);
  }
  if (schedule.barrier) all.period = all.makespan;
  const double time = all.period * static_cast<double>(schedule.ranks.size());
  all.bubble_fraction = time > 0.0 ? 1.0 - busy / time : 0.0;
  return all;
}

double steady_bubble(const Schedule& shorter, const Schedule& longer, const Costs& costs) {
  const Timeline first = simulate(shorter, costs);
  const Timeline second = simulate(longer, costs);
  double busy = 0.0;
  for (std::size_t rank = 0; rank < shorter.ranks.size(); ++rank) busy += second.busy(rank) - first.busy(rank);
  const double time = (second.makespan - first.makespan) * static_cast<double>(shorter.ranks.size());
  return time > 0.0 ? 1.0 - busy / time : 0.0;
}

}  // namespace plimsoll::strategy::schedules

#include "strategy/schedules/simulate.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"

namespace plimsoll::strategy::schedules {

namespace {

constexpr double kNotYet = -1.0;

// Runs orders piece by piece: a rank goes on until it lacks something, and whoever makes that wakes it. Each item is looked at
// a constant number of times.
class Runner {
 public:
  Runner(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        next_(schedule.ranks.size(), 0),
        clock_(schedule.ranks.size(), 0.0),
        wires_(schedule.ranks.size()) {
    const auto pairs = static_cast<std::size_t>(schedule.shape.stages() * schedule.shape.all_micro_batches());
    for (std::vector<double>* ends : {&forward_, &recompute_, &backward_, &forward_there_, &backward_there_}) ends->assign(pairs, kNotYet);
    has_recompute_.assign(pairs, false);
    for (const std::vector<Item>& items : schedule.ranks) {
      timeline_.ranks.emplace_back(items.size());
      for (const Item& item : items) {
        if (item.work == Work::recompute) has_recompute_[at(item.stage, item.micro_batch)] = true;
      }
    }
  }

  void run() {
    for (std::size_t rank = schedule_.ranks.size(); rank-- > 0;) awake_.push_back(static_cast<std::int32_t>(rank));
    while (!awake_.empty()) {
      const std::int32_t rank = awake_.back();
      awake_.pop_back();
      while (step(rank)) {
      }
    }
  }

  std::vector<Blocked> blocked() const {
    std::vector<Blocked> all;
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      const std::vector<Item>& items = schedule_.ranks[rank];
      for (std::size_t i = next_[rank]; i < items.size(); ++i) {
        if (const std::optional<Item> missing = missing_for(items[i], nullptr)) {
          all.push_back({.rank = static_cast<std::int32_t>(rank), .item = i, .waits_for = *missing});
          break;
        }
      }
    }
    return all;
  }

  Timeline take() { return std::move(timeline_); }

 private:
  std::size_t at(std::int32_t stage, std::int32_t micro_batch) const {
    return static_cast<std::size_t>(stage * schedule_.shape.all_micro_batches() + micro_batch);
  }

  // The first thing that `item` lacks; where nothing does and `ready` is given, it becomes the time at which all is there.
  std::optional<Item> missing_for(const Item& item, double* ready) const;

  // Runs the rank's next item, or as many as are joined.
  bool step(std::int32_t rank);
  void finish(std::int32_t rank, const Item& item, double end);
  // When what `rank` has made at `end` is there where `stage` needs it.
  double arrival(std::int32_t rank, std::int32_t stage, std::int32_t micro_batch, double end);

  const Schedule& schedule_;
  const Costs& costs_;
  std::vector<std::size_t> next_;
  std::vector<double> clock_;
  std::vector<std::array<double, 2>> wires_;            // of each rank, near and far: when they are free
  std::vector<double> forward_, recompute_, backward_;  // ends, by stage and micro-batch
  std::vector<double> forward_there_, backward_there_;  // the same, at the rank of the stage after and before
  std::vector<bool> has_recompute_;
  std::vector<std::int32_t> awake_;
  Timeline timeline_;
};

std::optional<Item> Runner::missing_for(const Item& item, double* ready) const {
  if (item.work == Work::update) return std::nullopt;
  std::optional<Item> missing;
  const auto needs = [&](const std::vector<double>& ends, Work work, std::int32_t stage) {
    const double end = ends[at(stage, item.micro_batch)];
    if (end == kNotYet && !missing) missing = Item{.work = work, .stage = stage, .micro_batch = item.micro_batch};
    if (ready != nullptr) *ready = std::max(*ready, end);
  };
  const bool last = item.stage + 1 == schedule_.shape.stages();
  switch (item.work) {
    case Work::forward:
      if (item.stage > 0) needs(forward_there_, Work::forward, item.stage - 1);
      break;
    case Work::recompute:
      needs(forward_, Work::forward, item.stage);
      if (costs_.recompute_on_gradient && !last) needs(backward_there_, Work::backward, item.stage + 1);
      break;
    case Work::backward:
    case Work::backward_input:
      needs(forward_, Work::forward, item.stage);
      if (has_recompute_[at(item.stage, item.micro_batch)]) needs(recompute_, Work::recompute, item.stage);
      if (!last) needs(backward_there_, Work::backward, item.stage + 1);
      break;
    case Work::backward_weight: needs(backward_, Work::backward_input, item.stage); break;
    case Work::update: break;
  }
  return missing;
}

bool Runner::step(std::int32_t rank) {
  const auto r = static_cast<std::size_t>(rank);
  const std::vector<Item>& items = schedule_.ranks[r];
  const std::size_t first = next_[r];
  if (first == items.size()) return false;
  double start = clock_[r];
  double duration = 0.0;
  std::size_t end = first;
  for (bool more = true; more; ++end) {
    if (missing_for(items[end], &start)) return false;
    duration += costs_.of(items[end]);
    more = items[end].joined && end + 1 < items.size();
  }
  clock_[r] = start + duration;
  next_[r] = end;
  for (std::size_t i = first; i < end; ++i) {
    timeline_.ranks[r][i] = {.start = start, .end = clock_[r]};
    finish(rank, items[i], clock_[r]);
  }
  timeline_.makespan = std::max(timeline_.makespan, clock_[r]);
  return true;
}

double Runner::arrival(std::int32_t rank, std::int32_t stage, std::int32_t micro_batch, double end) {
  if (stage < 0 || stage >= schedule_.shape.stages()) return end;
  const std::int32_t other = schedule_.rank_of(stage, micro_batch);
  if (other == rank) return end;
  const Hop hop = costs_.hop(rank, other);
  double& wire = wires_[static_cast<std::size_t>(rank)][hop.far ? 1 : 0];
  wire = std::max(wire, end) + hop.seconds;
  return wire;
}

void Runner::finish(std::int32_t rank, const Item& item, double end) {
  const auto wake = [&](std::int32_t stage) {
    if (stage < 0 || stage >= schedule_.shape.stages()) return;
    const std::int32_t other = schedule_.rank_of(stage, item.micro_batch);
    if (other != rank) awake_.push_back(other);
  };
  const std::size_t here = at(item.stage, item.micro_batch);
  if (item.work == Work::forward) {
    forward_[here] = end;
    forward_there_[here] = arrival(rank, item.stage + 1, item.micro_batch, end);
    wake(item.stage + 1);
  } else if (item.work == Work::recompute) {
    recompute_[here] = end;
  } else if (is_backward(item.work)) {
    backward_[here] = end;
    backward_there_[here] = arrival(rank, item.stage - 1, item.micro_batch, end);
    wake(item.stage - 1);
  }
}

}  // namespace

double Costs::of(const Item& item) const {
  switch (item.work) {
    case Work::forward: return of(item.stage).forward;
    case Work::backward: return of(item.stage).backward_input + of(item.stage).backward_weight;
    case Work::backward_input: return of(item.stage).backward_input;
    case Work::backward_weight: return of(item.stage).backward_weight;
    case Work::recompute: return of(item.stage).recompute;
    case Work::update: return update;
  }
  return 0.0;
}

Hop Costs::hop(std::int32_t from, std::int32_t to) const {
  if (hops.empty()) return {.seconds = message};
  const auto ranks = static_cast<std::int32_t>(hops.size());
  if ((from + 1) % ranks == to) return hops[static_cast<std::size_t>(from)];
  PLIMSOLL_CHECK((to + 1) % ranks == from, "ranks {} and {} are no neighbours in a pipeline of {}", from, to, ranks);
  return hops[static_cast<std::size_t>(to)];
}

double Timeline::busy(std::size_t rank) const {
  double sum = 0.0;
  double until = 0.0;
  for (const Span& span : ranks[rank]) {
    sum += std::max(span.end - std::max(span.start, until), 0.0);  // joined items share one span
    until = std::max(until, span.end);
  }
  return sum;
}

Timeline simulate(const Schedule& schedule, const Costs& costs) {
  Runner runner(schedule, costs);
  runner.run();
  const std::vector<Blocked> blocked = runner.blocked();
  PLIMSOLL_CHECK(blocked.empty(), "rank {} of schedule {} stops at item {}", blocked[0].rank, schedule.name, blocked[0].item);
  return runner.take();
}

std::vector<Blocked> find_blocked(const Schedule& schedule) {
  const Costs unit;
  Runner runner(schedule, unit);
  runner.run();
  return runner.blocked();
}

}  // namespace plimsoll::strategy::schedules

#include "lowering/fit.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lowering/block_chain.h"
#include "lowering/rank_graph.h"
#include "lowering/split_tensor.h"
#include "lowering/tiers.h"
#include "plan/waterline.h"

namespace plimsoll::lowering {

namespace {

using base::Bytes;

// Proposals are halved down to this share of the range.
constexpr std::int64_t kFineness = 200;

const ProgramSource* training(const LoweringInputs& inputs) {
  for (const ProgramSource& source : inputs.programs) {
    if (has_backward_pass(source.graph)) return &source;
  }
  return nullptr;
}

Bytes most_activations(const plan::RankClass& rank_class) {
  return plan::most_of_kind(rank_class, 0, plan::Tier::device, plan::BufferKind::activation);
}

// What a class has of a plan's device memory.
struct Need {
  Bytes arena;
  Bytes activations;
};

// By place of the pipe axis: what its fullest class needs.
std::vector<Need> needs_of(const plan::Plan& plan) {
  std::vector<Need> needs(static_cast<std::size_t>(plan.mesh.pipe));
  for (const plan::RankClass& rank_class : plan.classes) {
    Need& need = needs[static_cast<std::size_t>(plan.mesh.place(ops::Axis::pipe, rank_class.ranks.front()))];
    need.arena = std::max(need.arena, rank_class.arena[static_cast<std::size_t>(plan::Tier::device)]);
    need.activations = std::max(need.activations, most_activations(rank_class));
  }
  return needs;
}

// What a plan may take.
struct Limit {
  Bytes arena;                     // of a rank; zero: no limit
  std::vector<Bytes> activations;  // by place of the pipe axis; empty: no limit

  bool holds(const Need& need, std::size_t place) const {
    return (arena.count == 0 || need.arena <= arena) && (activations.empty() || need.activations <= activations[place]);
  }
  bool holds(const plan::Plan& plan) const {
    const std::vector<Need> needs = needs_of(plan);
    for (std::size_t place = 0; place < needs.size(); ++place) {
      if (!holds(needs[place], place)) return false;
    }
    return true;
  }
};

struct Candidate {
  plan::Plan plan;
  double again = 0.0;  // the price of what it makes again
};

Candidate candidate(const graph::Graph& graph, const RecomputeChoice& choice, const LowerWith& lower_with) {
  const RecomputeOrder order = order_of_recompute(graph, choice);
  return {lower_with(order), order.again};
}

// The fastest order whose plan keeps the limit. Places of a pipeline have memory, and micro-batches under way, of their own: each is
// searched for what a micro-batch may keep there, all of them with the same plans; not one that has room for everything, as `kept` says.
class Search {
 public:
  Search(const graph::Graph& graph, const Pipe& pipe, RecomputeChoice choice, const Limit& limit, const std::vector<Need>& kept,
         const LowerWith& lower_with)
      : graph_(graph), pipe_(pipe), choice_(std::move(choice)), limit_(limit), lower_with_(lower_with) {
    const std::vector<MemoryRange> ranges = memory_ranges(graph, choice_);
    between_.resize(static_cast<std::size_t>(pipe.places));
    for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
      if (ranges[stage].most == 0) continue;
      Between& between = between_[static_cast<std::size_t>(pipe.place_of_stage[stage])];
      between.fits = between.exceeds == 0 ? ranges[stage].least : std::min(between.fits, ranges[stage].least);
      between.exceeds = std::max(between.exceeds, ranges[stage].most + 1);
    }
    for (std::size_t place = 0; place < between_.size(); ++place) {
      Between& between = between_[place];
      between.step = std::max<std::int64_t>(1, (between.exceeds - 1 - between.fits) / kFineness);
      if (limit.holds(kept[place], place)) between.fits = between.exceeds *= 2;
    }
  }

  // Where none keeps the limit: the plan that needs least.
  Candidate run() {
    Candidate best = proposed(fitting());
    if (!limit_.holds(best.plan)) return best;
    std::vector<std::int64_t> chosen = fitting();
    while (std::any_of(between_.begin(), between_.end(), [](const Between& between) { return between.open(); })) {
      std::vector<std::int64_t> tried;
      for (const Between& between : between_) tried.push_back(between.open() ? between.middle() : between.fits);
      Candidate candidate = proposed(tried);
      const std::vector<Need> needs = needs_of(candidate.plan);
      for (std::size_t place = 0; place < between_.size(); ++place) {
        if (between_[place].open()) (limit_.holds(needs[place], place) ? between_[place].fits : between_[place].exceeds) = tried[place];
      }
      if (tried != fitting()) continue;
      best = std::move(candidate);
      chosen = std::move(tried);
    }
    return chosen == fitting() ? best : proposed(fitting());
  }

 private:
  // What a micro-batch may keep at a place.
  struct Between {
    std::int64_t fits = 0;
    std::int64_t exceeds = 0;
    std::int64_t step = 1;

    bool open() const { return exceeds - fits > step; }
    std::int64_t middle() const { return fits + (exceeds - fits) / 2; }
  };

  std::vector<std::int64_t> fitting() const {
    std::vector<std::int64_t> memory;
    for (const Between& between : between_) memory.push_back(between.fits);
    return memory;
  }

  Candidate proposed(const std::vector<std::int64_t>& of_place) const {
    RecomputeChoice choice = choice_;
    for (std::int32_t place : pipe_.place_of_stage) choice.memory.push_back(of_place[static_cast<std::size_t>(place)]);
    return candidate(graph_, choice, lower_with_);
  }

  const graph::Graph& graph_;
  const Pipe& pipe_;
  RecomputeChoice choice_;  // but for the memory
  const Limit& limit_;
  const LowerWith& lower_with_;
  std::vector<Between> between_;  // by place
};

[[noreturn]] void refuse(const plan::Plan& least, const Limit& limit) {
  const std::vector<Need> needs = needs_of(least);
  for (std::size_t place = 0; place < needs.size() && !limit.activations.empty(); ++place) {
    if (needs[place].activations <= limit.activations[place]) continue;
    base::not_legal(
        "\"recompute\" is \"optimal\" with {} for activations, but no order was found that needs less than {}; use a larger "
        "\"recompute_memory\"",
        base::to_string(limit.activations[place]), base::to_string(needs[place].activations));
  }
  const Bytes arena = plan::fullest_class(least).arena[static_cast<std::size_t>(plan::Tier::device)];
  base::not_legal(
      "\"recompute\" is \"optimal\", but with everything made again that can be, a rank needs {} ({} B) and may have {}; use a larger "
      "\"limits.device\", a smaller \"batch.micro\", or more ranks with \"zero\"",
      base::to_string(arena), arena.count, base::to_string(limit.arena));
}

// By stage: the most micro-batches that have gone forward and not back.
std::vector<std::int32_t> under_way(const RankGraphs& graphs, const ProgramSource& source) {
  using strategy::schedules::Work;
  std::vector<std::int32_t> most(graphs.pipe().place_of_stage.size(), 0);
  for (std::int32_t place = 0; place < graphs.pipe().places; ++place) {
    std::map<std::int32_t, std::int32_t> now;  // by stage
    for (const strategy::schedules::Item& item : graphs.items_at(source, place)) {
      if (item.work == Work::forward) ++now[item.stage];
      if (strategy::schedules::is_backward(item.work)) --now[item.stage];
      if (item.stage >= 0)
        most[static_cast<std::size_t>(item.stage)] = std::max(most[static_cast<std::size_t>(item.stage)], now[item.stage]);
    }
  }
  return most;
}

// The chain counts bytes somewhat differently than a plan lays them out. Where there is little room, what every block does alike may fit
// though it would not by that count.
Candidate uniform(const graph::Graph& graph, RecomputeChoice choice, const LowerWith& lower_with) {
  choice.kind = strategy::Recompute::full;
  choice.every = 1;
  Candidate full = candidate(graph, choice, lower_with);
  full.plan.notes.push_back("recompute optimal: nothing that fits makes less again than \"full\"");
  return full;
}

// Where neither keeps the limit: the one that needs less of what is limited.
bool is_better(const Candidate& other, const Candidate& best, const Limit& limit) {
  const bool holds = limit.holds(best.plan);
  if (holds != limit.holds(other.plan)) return !holds;
  if (holds) return other.again < best.again;
  const auto most = [&](const plan::Plan& plan) {
    return limit.activations.empty() ? plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)]
                                     : lowering::most_activations(plan);
  };
  return most(other.plan) < most(best.plan);
}

plan::Plan fit_optimal(const LoweringInputs& inputs, const graph::Graph& graph, const Pipe& pipe, RecomputeChoice choice,
                       const LowerWith& lower_with) {
  choice.link = inputs.strategy.offload.activations.anything() ? inputs.link : 0.0;
  RecomputeOrder everything;
  if (choice.link > 0.0) everything.leaving.emplace();
  plan::Plan kept = lower_with(everything);
  Limit limit{.arena = inputs.device_limit, .activations = {}};
  if (inputs.strategy.recompute_memory > 0.0) {
    for (const Need& need : needs_of(kept)) {
      const double share = inputs.strategy.recompute_memory * static_cast<double>(need.activations.count);
      limit.activations.push_back(Bytes{std::max<std::int64_t>(1, static_cast<std::int64_t>(share))});
    }
  }
  if (limit.holds(kept)) {
    kept.notes.push_back("recompute optimal: everything fits, so nothing is made again");
    return kept;
  }
  // Weight gradients fill the arena towards the end of the step, when activations have gone: an order that counts them can keep
  // more. Where only activations are limited, or that order exceeds the arena after all, they are left out of the count.
  Candidate best;
  if (!choice.accumulates && limit.activations.empty()) best = Search(graph, pipe, choice, limit, needs_of(kept), lower_with).run();
  if (best.plan.classes.empty() || !limit.holds(best.plan)) {
    choice.accumulates = true;
    Candidate leaner = Search(graph, pipe, choice, limit, needs_of(kept), lower_with).run();
    const auto arena = [](const plan::Plan& plan) { return plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)]; };
    if (best.plan.classes.empty() || limit.holds(leaner.plan) || arena(leaner.plan) < arena(best.plan)) best = std::move(leaner);
  }
  if (choice.link == 0.0) {
    Candidate other = uniform(graph, choice, lower_with);
    if (is_better(other, best, limit)) best = std::move(other);
  }
  if (!limit.holds(best.plan)) refuse(best.plan, limit);
  return std::move(best.plan);
}

}  // namespace

Bytes most_activations(const plan::Plan& plan) {
  Bytes most{0};
  for (const plan::RankClass& rank_class : plan.classes) most = std::max(most, most_activations(rank_class));
  return most;
}

plan::Plan fit_update(const LoweringInputs& inputs, std::int64_t folded,
                      const std::function<plan::Plan(const LoweringInputs&)>& lower_with) {
  plan::Plan plan = lower_with(inputs);
  const bool waits = host_update(inputs) == HostUpdate::under_forward;
  if (!waits || inputs.strategy.carry_update != strategy::CarryUpdate::automatic || inputs.host_limit.count == 0) return plan;
  const Bytes host = plan::arena_of_all(plan, plan::Tier::host) * folded;
  if (host <= inputs.host_limit) return plan;
  LoweringInputs leaner = inputs;
  leaner.strategy.carry_update = strategy::CarryUpdate::never;
  plan = lower_with(leaner);
  plan.notes.push_back(fmt::format("under the next forward pass it would need {} of the host's memory, and there is {}",
                                   base::to_string(host), base::to_string(inputs.host_limit)));
  return plan;
}

plan::Plan fit_recompute(const LoweringInputs& inputs, const LowerWith& lower_with) {
  const ProgramSource* source = training(inputs);
  if (source == nullptr || inputs.strategy.recompute == strategy::Recompute::none) return lower_with({});
  // The first place of the tensor axis has the largest part.
  const graph::Graph slice = split_over_tensor(source->graph, {.members = inputs.strategy.tensor, .place = 0}, inputs.strategy);
  const RecomputeOrder everything_kept;
  const RankGraphs graphs(inputs, everything_kept);
  const RecomputeChoice choice{.kind = inputs.strategy.recompute,
                               .every = inputs.strategy.recompute_every,
                               .accumulates = source->micro_batches > 1,
                               .stage_of_block = graphs.pipe().stage_of_block,
                               .under_way = under_way(graphs, *source)};
  if (choice.kind == strategy::Recompute::optimal) return fit_optimal(inputs, slice, graphs.pipe(), choice, lower_with);
  return lower_with(order_of_recompute(slice, choice));
}

}  // namespace plimsoll::lowering

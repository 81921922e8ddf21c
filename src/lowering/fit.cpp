#include "lowering/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "lowering/passes/block_chain.h"
#include "lowering/passes/split_tensor.h"
#include "lowering/rank_graph.h"
#include "lowering/tiers.h"
#include "plan/waterline.h"
#include "strategy/legality.h"

namespace plimsoll::lowering {

namespace {

using base::Bytes;

// Proposals are halved down to this share of the range.
constexpr std::int64_t kFineness = 200;
// Micro-batches after which a step repeats itself, so that it needs no more memory: of one rank, and for each rank of a pipeline.
constexpr std::int64_t kEnough = 4;
constexpr std::int64_t kEnoughForARank = 3;
// How much the memory of a step may differ from that of a shorter one for the search to be made with the shorter.
constexpr double kAlike = 0.01;
constexpr int kAttempts = 2;

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
  std::vector<Need> needs(static_cast<std::size_t>(plan.mesh.extent(ops::Axis::pipe)));
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
  RecomputeOrder order;
  std::string note{};
};

using LowerOrder = std::function<plan::Plan(const RecomputeOrder&)>;

Candidate candidate(const graph::Graph& graph, const RecomputeChoice& choice, const LowerOrder& lower_with) {
  RecomputeOrder order = order_of_recompute(graph, choice);
  plan::Plan plan = lower_with(order);
  return {std::move(plan), std::move(order)};
}

// The fastest order whose plan keeps the limit. Places of a pipeline have memory, and micro-batches under way, of their own: each is
// searched for what a micro-batch may keep there, all of them with the same plans; not one that has room for everything, as `kept` says.
class Search {
 public:
  Search(const graph::Graph& graph, const Pipe& pipe, RecomputeChoice choice, const Limit& limit, const std::vector<Need>& kept,
         const LowerOrder& lower_with)
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
  const LowerOrder& lower_with_;
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
    for (const strategy::schedules::Item& item : graphs.items_at(source, graphs.mesh().first_rank(place))) {
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
Candidate uniform(const graph::Graph& graph, RecomputeChoice choice, const LowerOrder& lower_with) {
  choice.kind = strategy::Recompute::full;
  choice.every = 1;
  Candidate full = candidate(graph, choice, lower_with);
  full.note = "recompute optimal: nothing that fits makes less again than \"full\"";
  return full;
}

// Where neither keeps the limit: the one that needs less of what is limited.
bool is_better(const Candidate& other, const Candidate& best, const Limit& limit) {
  const bool holds = limit.holds(best.plan);
  if (holds != limit.holds(other.plan)) return !holds;
  if (holds) return other.order.again < best.order.again;
  const auto most = [&](const plan::Plan& plan) {
    return limit.activations.empty() ? plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)]
                                     : lowering::most_activations(plan);
  };
  return most(other.plan) < most(best.plan);
}

// The best order that was found; its plan need not keep the limit.
Candidate best_order(const graph::Graph& graph, const Pipe& pipe, RecomputeChoice choice, const Limit& limit, const std::vector<Need>& kept,
                     const LowerOrder& lower_with) {
  // Weight gradients fill the arena towards the end of the step, when activations have gone: an order that counts them can keep
  // more. Where only activations are limited, or that order exceeds the arena after all, they are left out of the count.
  Candidate best;
  if (!choice.accumulates && limit.activations.empty()) best = Search(graph, pipe, choice, limit, kept, lower_with).run();
  if (best.plan.classes.empty() || !limit.holds(best.plan)) {
    choice.accumulates = true;
    Candidate leaner = Search(graph, pipe, choice, limit, kept, lower_with).run();
    const auto arena = [](const plan::Plan& plan) { return plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)]; };
    if (best.plan.classes.empty() || limit.holds(leaner.plan) || arena(leaner.plan) < arena(best.plan)) best = std::move(leaner);
  }
  if (choice.link == 0.0) {
    Candidate other = uniform(graph, choice, lower_with);
    if (is_better(other, best, limit)) best = std::move(other);
  }
  return best;
}

plan::Plan noted(plan::Plan plan, const std::string& note) {
  if (!note.empty()) plan.notes.push_back(note);
  return plan;
}

// The same step with no more micro-batches than it takes to need as much memory; nullopt where it has no more, or what needs how much
// depends on their number.
std::optional<LoweringInputs> shortened(const LoweringInputs& inputs) {
  const strategy::Strategy& strategy = inputs.strategy;
  if (inputs.schedule || !strategy::synchronous(strategy)) return std::nullopt;
  const std::int64_t round = std::lcm(strategy.pipe, strategy.turn());
  const std::int64_t enough = strategy.pipe == 1 ? std::max(kEnough, round) : std::max(kEnoughForARank * strategy.pipe, round);
  const auto fewer = static_cast<std::int32_t>((enough + round - 1) / round * round);
  const ProgramSource* train = training(inputs);
  if (train->micro_batches <= fewer) return std::nullopt;
  LoweringInputs shorter{.model = inputs.model,
                         .programs = {},
                         .strategy = inputs.strategy,
                         .choose = inputs.choose,
                         .threads = inputs.threads,
                         .link = inputs.link,
                         .host_beside = inputs.host_beside,
                         .device_limit = inputs.device_limit,
                         .host_limit = inputs.host_limit,
                         .rows = inputs.rows};
  for (const ProgramSource& source : inputs.programs) {
    const bool steps = source.micro_batches == train->micro_batches;
    shorter.programs.push_back({source.name, source.graph, steps ? fewer : source.micro_batches, source.waiting_update_only});
  }
  return shorter;
}

bool alike(const std::vector<Need>& one, const std::vector<Need>& other) {
  const auto near = [](Bytes a, Bytes b) {
    return std::abs(static_cast<double>(a.count - b.count)) <= kAlike * static_cast<double>(std::max(a.count, b.count));
  };
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [&](const Need& a, const Need& b) { return near(a.arena, b.arena) && near(a.activations, b.activations); });
}

plan::Plan fit_optimal(const LoweringInputs& inputs, const graph::Graph& graph, const Pipe& pipe, RecomputeChoice choice,
                       const LowerWith& lower_with) {
  choice.link = inputs.strategy.offload.activations.anything() ? inputs.link : 0.0;
  RecomputeOrder everything;
  if (choice.link > 0.0) everything.leaving.emplace();
  plan::Plan kept = lower_with(inputs, everything);
  Limit limit{.arena = inputs.device_limit, .activations = {}};
  if (inputs.strategy.recompute_memory > 0.0) {
    for (const Need& need : needs_of(kept)) {
      const double share = inputs.strategy.recompute_memory * static_cast<double>(need.activations.count);
      limit.activations.push_back(Bytes{std::max<std::int64_t>(1, static_cast<std::int64_t>(share))});
    }
  }
  if (limit.holds(kept)) return noted(std::move(kept), "recompute optimal: everything fits, so nothing is made again");
  const std::vector<Need> needs = needs_of(kept);
  kept = {};  // a plan of thousands of micro-batches is large
  const auto lower_by = [&](const LoweringInputs& tried) { return [&](const RecomputeOrder& order) { return lower_with(tried, order); }; };
  if (const std::optional<LoweringInputs> shorter = shortened(inputs);
      shorter && alike(needs_of(lower_with(*shorter, everything)), needs)) {
    // The longer step may need a little more after all: then the search has that much less.
    Limit tighter = limit;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const Candidate found = best_order(graph, pipe, choice, tighter, needs, lower_by(*shorter));
      plan::Plan plan = lower_with(inputs, found.order);
      if (limit.holds(plan)) return noted(std::move(plan), found.note);
      if (limit.arena.count == 0 || !tighter.holds(found.plan)) break;
      const Bytes excess = plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)] - limit.arena;
      tighter.arena = tighter.arena - excess - Bytes{limit.arena.count / 1000};
    }
  }
  Candidate best = best_order(graph, pipe, choice, limit, needs, lower_by(inputs));
  if (!limit.holds(best.plan)) refuse(best.plan, limit);
  return noted(std::move(best.plan), best.note);
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
  if (source == nullptr || inputs.strategy.recompute == strategy::Recompute::none) return lower_with(inputs, {});
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
  return lower_with(inputs, order_of_recompute(slice, choice));
}

}  // namespace plimsoll::lowering

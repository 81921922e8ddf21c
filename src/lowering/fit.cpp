#include "lowering/fit.h"

#include <algorithm>

#include <fmt/format.h>

#include "lowering/block_chain.h"
#include "lowering/split_tensor.h"
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

Bytes arena(const plan::Plan& plan) { return plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)]; }

// What a plan may take.
struct Limit {
  Bytes arena;        // zero: no limit
  Bytes activations;  // zero: no limit

  bool holds(const plan::Plan& plan) const {
    return (arena.count == 0 || lowering::arena(plan) <= arena) && (activations.count == 0 || most_activations(plan) <= activations);
  }
};

// The fastest order whose plan keeps the limit. `accumulates`: weight gradients are left out of the chain's count.
class Search {
 public:
  Search(const graph::Graph& graph, bool accumulates, double link, const Limit& limit, const LowerWith& lower_with)
      : graph_(graph),
        accumulates_(accumulates),
        link_(link),
        limit_(limit),
        lower_with_(lower_with),
        range_(memory_range(graph, accumulates)) {}

  // Where none keeps the limit: the plan that needs least.
  plan::Plan run() const {
    plan::Plan best = proposed(range_.least);
    if (!limit_.holds(best)) return best;
    std::int64_t fits = range_.least;
    std::int64_t exceeds = range_.most + 1;
    while (exceeds - fits > std::max<std::int64_t>(1, (range_.most - range_.least) / kFineness)) {
      const std::int64_t middle = fits + (exceeds - fits) / 2;
      plan::Plan plan = proposed(middle);
      if (limit_.holds(plan)) {
        best = std::move(plan);
        fits = middle;
      } else {
        exceeds = middle;
      }
    }
    return best;
  }

 private:
  plan::Plan proposed(std::int64_t memory) const {
    return lower_with_(
        order_of_recompute(graph_, {.kind = strategy::Recompute::optimal, .memory = memory, .accumulates = accumulates_, .link = link_}));
  }

  const graph::Graph& graph_;
  bool accumulates_;
  double link_;
  Limit limit_;
  const LowerWith& lower_with_;
  MemoryRange range_;
};

[[noreturn]] void refuse(const plan::Plan& least, const Limit& limit) {
  if (limit.activations.count > 0 && most_activations(least) > limit.activations) {
    base::not_legal(
        "\"recompute\" is \"optimal\" with {} for activations, but no order was found that needs less than {}; use a larger "
        "\"recompute_memory\"",
        base::to_string(limit.activations), base::to_string(most_activations(least)));
  }
  base::not_legal(
      "\"recompute\" is \"optimal\", but with everything made again that can be, a rank needs {} ({} B) and may have {}; use a larger "
      "\"limits.device\", a smaller \"batch.micro\", or more ranks with \"zero\"",
      base::to_string(arena(least)), arena(least).count, base::to_string(limit.arena));
}

plan::Plan fit_optimal(const LoweringInputs& inputs, const graph::Graph& graph, bool accumulates, const LowerWith& lower_with) {
  const double link = inputs.strategy.offload.activations.anything() ? inputs.link : 0.0;
  RecomputeOrder everything;
  if (link > 0.0) everything.leaving.emplace();
  plan::Plan kept = lower_with(everything);
  Limit limit{.arena = inputs.device_limit, .activations = {}};
  if (inputs.strategy.recompute_memory > 0.0) {
    const double share = inputs.strategy.recompute_memory * static_cast<double>(most_activations(kept).count);
    limit.activations = Bytes{std::max<std::int64_t>(1, static_cast<std::int64_t>(share))};
  }
  if (limit.holds(kept)) {
    kept.notes.push_back("recompute optimal: everything fits, so nothing is made again");
    return kept;
  }
  // Weight gradients fill the arena towards the end of the step, when activations have gone: an order that counts them can keep
  // more. Where only activations are limited, or that order exceeds the arena after all, they are left out of the count.
  plan::Plan best;
  if (!accumulates && limit.activations.count == 0) {
    best = Search(graph, false, link, limit, lower_with).run();
    if (limit.holds(best)) return best;
  }
  plan::Plan leaner = Search(graph, true, link, limit, lower_with).run();
  if (limit.holds(leaner)) return leaner;
  refuse(best.classes.empty() || arena(leaner) < arena(best) ? leaner : best, limit);
}

}  // namespace

Bytes most_activations(const plan::Plan& plan) {
  Bytes most{0};
  for (const plan::RankClass& rank_class : plan.classes)
    most = std::max(most, plan::most_of_kind(rank_class, 0, plan::Tier::device, plan::BufferKind::activation));
  return most;
}

plan::Plan fit_recompute(const LoweringInputs& inputs, const LowerWith& lower_with) {
  const ProgramSource* source = training(inputs);
  if (source == nullptr || inputs.strategy.recompute == strategy::Recompute::none) return lower_with({});
  // The first place of the tensor axis has the largest part.
  const graph::Graph slice = split_over_tensor(source->graph, {.members = inputs.strategy.tensor, .place = 0}, inputs.strategy);
  const bool accumulates = source->micro_batches > 1;
  if (inputs.strategy.recompute == strategy::Recompute::optimal) return fit_optimal(inputs, slice, accumulates, lower_with);
  return lower_with(order_of_recompute(slice, {.kind = inputs.strategy.recompute, .every = inputs.strategy.recompute_every}));
}

}  // namespace plimsoll::lowering

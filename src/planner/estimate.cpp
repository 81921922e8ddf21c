#include "planner/estimate.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/sheet.h"
#include "strategy/legality.h"
#include "strategy/schedules/simulate.h"
#include "strategy/schedules/table.h"

namespace plimsoll::planner {

namespace {

namespace schedules = strategy::schedules;
using strategy::Strategy;

schedules::Shape shape_of(const Problem& problem, const Choice& choice) {
  return {.ranks = choice.strategy.pipe, .micro_batches = choice.micro_batches(problem), .chunks = choice.strategy.chunks};
}

// Along a rank's order, where most is kept of micro-batches between their forward and the end of their backward.
std::vector<Moment> moments_of(const std::vector<schedules::Item>& items, const Sheet& sheet, const RankPrice& rank) {
  std::vector<Moment> moments;
  std::set<std::int64_t> begun;
  std::int64_t begun_bytes = 0;
  std::int64_t kept = 0;
  const auto share = [&] { return as_double(begun_bytes) / std::max(1.0, as_double(rank.gradients)); };
  const auto note = [&](const Moment& moment) {
    const auto alike = [&](const Moment& other) {
      return other.begun == moment.begun && other.then == moment.then && other.is_backward == moment.is_backward;
    };
    const auto found = std::find_if(moments.begin(), moments.end(), alike);
    if (found == moments.end()) {
      moments.push_back(moment);
    } else if (found->kept < moment.kept) {
      *found = moment;
    }
  };
  for (const schedules::Item& item : items) {
    if (item.work == schedules::Work::update || item.work == schedules::Work::recompute) continue;
    const StagePrice& stage = sheet.stages()[static_cast<std::size_t>(item.stage)];
    if (item.work == schedules::Work::forward || item.work == schedules::Work::backward_input) {
      note({.begun = share(), .then = share(), .kept = kept});
      kept += item.work == schedules::Work::forward ? stage.kept : stage.kept_for_weights - stage.kept;
      note({.begun = share(), .then = share(), .kept = kept});
      continue;
    }
    Moment moment{.begun = share(), .kept = kept, .is_backward = true};
    moment.leaves = item.work == schedules::Work::backward ? stage.kept : stage.kept_for_weights;
    if (begun.insert(item.stage).second) begun_bytes += stage.gradients;
    moment.then = share();
    note(moment);
    kept -= moment.leaves;
  }
  return moments;
}

Passes run_passes(const Sheet& sheet, std::string_view name, const schedules::Shape& shape) {
  Passes passes;
  if (shape.ranks == 1) {
    passes.ends = {as_double(shape.micro_batches) * sheet.ranks()[0].work};
    passes.moments = {sheet.least_moments(0)};
    passes.makespan = passes.ends[0];
    return passes;
  }
  schedules::Costs costs{.stages = {}};
  for (const Wires::Hop& hop : sheet.hops()) costs.hops.push_back({.seconds = hop.seconds, .far = hop.far});
  for (const StagePrice& stage : sheet.stages()) {
    // Schedules with recomputes of their own have them as pieces; in others they are part of the backward pass.
    const bool apart = schedules::find_kind(name).recomputes;
    costs.stages.push_back({.forward = stage.forward,
                            .backward_input = stage.backward_input - (apart ? stage.again : 0.0),
                            .backward_weight = stage.backward_weight,
                            .recompute = stage.again});
  }
  const schedules::Schedule schedule = schedules::build(name, shape);
  const schedules::Timeline timeline = schedules::simulate(schedule, costs);
  for (const std::vector<schedules::Span>& spans : timeline.ranks) passes.ends.push_back(spans.back().end);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    passes.moments.push_back(moments_of(schedule.ranks[rank], sheet, sheet.ranks()[rank]));
  passes.makespan = timeline.makespan;
  return passes;
}

std::string too_large(const Memory& memory, const Problem& problem, std::size_t rank) {
  if (memory.device() > problem.device) {
    return fmt::format("needs {} on the device of pipeline rank {}, {} more than there is", base::to_string(memory.device()), rank,
                       base::to_string(memory.device() - problem.device));
  }
  const std::int64_t local = std::min(problem.ranks, problem.ranks_per_node);
  const Bytes host = memory.host * local;
  const Bytes both = memory.device() * local + host;
  if (problem.together.count > 0 && both > problem.together)
    return fmt::format("needs {} of a machine's memory, and there are {}", base::to_string(both), base::to_string(problem.together));
  if (host > problem.host)
    return fmt::format("needs {} of a host's memory, and there are {}", base::to_string(host), base::to_string(problem.host));
  const Bytes disk = memory.disk * local;
  if (disk > problem.disk)
    return fmt::format("needs {} of a node's disk, and there are {}", base::to_string(disk), base::to_string(problem.disk));
  return "";
}

}  // namespace

std::string Estimator::reason_against(const Choice& choice) {
  const Strategy& strategy = choice.strategy;
  if (strategy.ranks() != problem_.ranks) {
    return fmt::format("data {} x tensor {} x pipe {}{} is {} ranks, not {}", strategy.data, strategy.tensor, strategy.pipe,
                       strategy::more_text(strategy), strategy.ranks(), problem_.ranks);
  }
  if (problem_.global_batch % (choice.micro * strategy.batch_ranks()) != 0) {
    return fmt::format("micro-batches of {} samples on {} data ranks do not make up a batch of {}", choice.micro, strategy.data,
                       problem_.global_batch);
  }
  if (strategy.tensor > problem_.heads)
    return fmt::format("{} heads cannot be dealt out to {} tensor ranks", problem_.heads, strategy.tensor);
  if (strategy.pipe * strategy.chunks > problem_.most_stages()) {
    return fmt::format("{} stages for {} layers, an embedding and a head", strategy.pipe * strategy.chunks, problem_.layers);
  }
  const std::vector<std::string> reasons = strategy::reasons_against(strategy, choice.micro_batches(problem_));
  if (!reasons.empty()) return reasons[0];
  if (const std::string& reason = prices_.of(problem_, choice).reason; !reason.empty()) return reason;
  if (strategy.pipe == 1) return "";
  const std::vector<std::string> of_schedule =
      schedules::reasons_against(schedules::find_kind(strategy.schedule), shape_of(problem_, choice));
  return of_schedule.empty() ? "" : of_schedule[0];
}

Bounds Estimator::bounds(const Choice& choice) {
  const Sheet sheet(problem_, choice, prices_);
  Bounds bounds{.step_seconds = sheet.least_seconds() + sheet.most_update(), .device = {}};
  for (std::size_t rank = 0; rank < sheet.ranks().size(); ++rank)
    bounds.device = std::max(bounds.device, sheet.memory(sheet.ranks()[rank], sheet.least_moments(rank)).device());
  return bounds;
}

Bounds Estimator::shape_bounds(const Choice& shape) {
  // Everything in shards, what may live elsewhere there, nothing said: no way to share out takes less of either.
  Choice free = shape;
  free.strategy.zero = 0;
  const Sheet sheet(problem_, free, prices_, false);
  const std::int64_t data = shape.strategy.data;
  Bounds bounds{.step_seconds = sheet.least_passes(), .device = {}};
  for (std::size_t rank = 0; rank < sheet.ranks().size(); ++rank) {
    const RankPrice& price = sheet.ranks()[rank];
    // Of what can live in a slower tier, nothing need be here.
    const bool elsewhere = (problem_.host_is_a_tier && problem_.host.count > 0) || problem_.disk.count > 0;
    const std::int64_t weights = elsewhere ? 0 : price.weights / data;
    const std::int64_t states = elsewhere ? 0 : (price.weights + price.gradients) / data;
    const bool leaves = elsewhere && shape.strategy.pipe == 1;
    const std::int64_t kept = leaves ? 0 : sheet.least_kept(rank);
    // Where no forward pass follows a backward pass, activations and gradients need not be there together.
    const std::int64_t least = sheet.surely_together(rank) ? states + kept : std::max(weights + kept, states);
    bounds.device = std::max(bounds.device, Bytes{least + price.temporary});
  }
  return bounds;
}

const Passes& Estimator::passes_of(const Sheet& sheet, const Choice& choice) {
  const Strategy& strategy = choice.strategy;
  const schedules::Shape shape = shape_of(problem_, choice);
  const bool waits = std::any_of(sheet.stages().begin(), sheet.stages().end(), [](const StagePrice& stage) { return stage.wait > 0.0; });
  const bool fitted = strategy.recompute == strategy::Recompute::optimal && strategy.pipe > 1;
  const bool own = waits || fitted || strategy.partition == strategy::StagePartition::listed;
  Passes& passes =
      own ? apart_
          : known_[{key_of(problem_, choice), strategy.schedule, strategy.pipe, strategy.chunks, strategy.recompute, strategy.partition}];
  if (!own && !passes.ends.empty()) return passes;
  passes = run_passes(sheet, strategy.schedule, shape);
  pieces_ += 2 * shape.stages() * shape.micro_batches;
  return passes;
}

Estimate Estimator::evaluate(const Choice& choice) {
  Estimate estimate;
  estimate.reason = reason_against(choice);
  if (!estimate.fits()) return estimate;
  const Sheet sheet(problem_, choice, prices_);
  const schedules::Shape shape = shape_of(problem_, choice);
  const Passes& passes = passes_of(sheet, choice);

  double reduced = 0.0;
  double work = 0.0;
  std::size_t fullest = 0;
  std::string elsewhere;
  for (std::size_t rank = 0; rank < sheet.ranks().size(); ++rank) {
    reduced = std::max(reduced, passes.ends[rank] + sheet.exposed_reduction(sheet.ranks()[rank]));
    work += as_double(shape.micro_batches) * sheet.ranks()[rank].work;
    const Memory memory = sheet.memory(sheet.ranks()[rank], passes.moments[rank]);
    if (rank == 0 || memory.device() > estimate.memory.device()) {
      estimate.memory = memory;
      fullest = rank;
    }
    if (elsewhere.empty()) elsewhere = too_large(memory, problem_, rank);
  }
  // The fullest rank says how much more there would have to be.
  estimate.reason = too_large(estimate.memory, problem_, fullest);
  if (estimate.reason.empty()) estimate.reason = elsewhere;
  const double pipe = as_double(shape.ranks);
  double tensor_seconds = 0.0;
  double again = 0.0;
  double wait = 0.0;
  for (const StagePrice& stage : sheet.stages()) {
    tensor_seconds += stage.tensor_seconds * as_double(shape.micro_batches);
    again += stage.again * as_double(shape.micro_batches);
    wait += stage.wait * as_double(shape.micro_batches);
    estimate.flops += stage.flops * as_double(shape.micro_batches) / pipe;
  }
  estimate.update_seconds = sheet.most_update();
  estimate.step_seconds = reduced + estimate.update_seconds;
  estimate.bubble = 1.0 - work / (pipe * passes.makespan);
  estimate.exposed = reduced - passes.makespan;
  estimate.tensor_share = work > 0.0 ? tensor_seconds / work : 0.0;
  estimate.wait_share = work > 0.0 ? wait / work : 0.0;
  estimate.again_share = work > 0.0 ? again / work : 0.0;
  if (choice.strategy.recompute == strategy::Recompute::optimal && choice.strategy.pipe == 1) fit(sheet, choice, estimate);
  return estimate;
}

void Estimator::fit(const Sheet& sheet, const Choice& choice, Estimate& estimate) {
  Memory& memory = estimate.memory;
  const bool alone = sheet.alone();
  const Residency& residency =
      residencies_.try_emplace({key_of(problem_, choice), alone}, prices_.of(problem_, choice), problem_.layers, alone).first->second;
  // The chain counts what passes need beside what they keep, and where nothing else is there, gradients.
  const std::int64_t counted = memory.activations.count + memory.working.count + (alone ? memory.gradients.count : 0);
  const std::int64_t rest = memory.device().count - counted;
  const Tier tier = tier_of(choice.strategy.offload.activations);
  constexpr std::int64_t kProbe = 1 << 28;
  const double link = tier == Tier::device ? 0.0 : as_double(kProbe) / problem_.wires.copy(kProbe, tier);
  const std::optional<Residency::Way> way = residency.within(problem_.device.count - rest, link);
  const std::int64_t bytes = way ? way->bytes : residency.least();
  memory.activations = Bytes{std::max(memory.activations.count, bytes - (counted - memory.activations.count))};
  if (!way) {
    estimate.reason = fmt::format("needs {} with everything made again that can be, {} more than there is",
                                  base::to_string(memory.device()), base::to_string(memory.device() - problem_.device));
    return;
  }
  if (estimate.reason.empty()) {
    (tier == Tier::disk ? memory.disk : memory.host) += Bytes{way->away};
    estimate.reason = too_large(memory, problem_, 0);
  }
  const double passes = estimate.step_seconds - estimate.exposed - estimate.update_seconds;
  const double again = way->again * as_double(choice.micro_batches(problem_));
  estimate.step_seconds += again;
  estimate.again_share = again / (passes + again);
}

}  // namespace plimsoll::planner

#include "cli/plan_word.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "plan/waterline.h"
#include "train/foresight/planning.h"

namespace plimsoll::cli {

namespace {

using base::Bytes;

constexpr std::int64_t kMostBuckets = 20'000;

// Where the bytes of a plan's fullest rank are; what is of no kind of its own counts as working memory.
void take_memory(const plan::RankClass& rank_class, bool outlined, planner::Memory& memory) {
  const Bytes arena = rank_class.arena[static_cast<std::size_t>(plan::Tier::device)];
  memory.host = rank_class.arena[static_cast<std::size_t>(plan::Tier::host)];
  memory.disk = rank_class.arena[static_cast<std::size_t>(plan::Tier::disk)];
  if (outlined) {  // what a block's buffers are is not known, only their sum
    const double scale = static_cast<double>(arena.count) / static_cast<double>(std::max<std::int64_t>(1, memory.device().count));
    for (Bytes* part : {&memory.weights, &memory.gradients, &memory.optimizer, &memory.activations})
      *part = Bytes{static_cast<std::int64_t>(scale * static_cast<double>(part->count))};
  } else {
    const plan::Waterline line = plan::waterline(rank_class, 0, plan::Tier::device);
    memory.weights = memory.gradients = memory.optimizer = memory.activations = {};
    for (const auto& [kind, bytes] : plan::by_kind(rank_class, 0, plan::Tier::device, line.peak_call)) {
      if (kind == plan::BufferKind::parameter) memory.weights += bytes;
      if (kind == plan::BufferKind::gradient) memory.gradients += bytes;
      if (kind == plan::BufferKind::state) memory.optimizer += bytes;
      if (kind == plan::BufferKind::activation) memory.activations += bytes;
    }
  }
  memory.working = arena - (memory.weights + memory.gradients + memory.optimizer + memory.activations);
}

}  // namespace

bool may_be_outlined(const planner::Choice& choice) {
  return choice.strategy.recompute == strategy::Recompute::optimal && !choice.strategy.own_degrees();
}

Word simulate_one(const Outcome& outcome, Candidate& candidate, Closely closely) {
  std::optional<train::Forecast> made;
  train::ForecastOptions options;
  const config::Run decided = train::decided(outcome.run, candidate.choice);
  if (closely == Closely::outline && may_be_outlined(candidate.choice)) options.outline = true;
  try {
    made = train::forecast(decided, outcome.cluster, options);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    return {.refusal = error.what()};
  }
  const train::Forecast& forecast = *made;
  const plan::RankClass& fullest = plan::fullest_class(forecast.plan);
  const Bytes arena = fullest.arena[static_cast<std::size_t>(plan::Tier::device)];
  if (arena > outcome.problem.device)
    return {.refusal = fmt::format("{} needs {} on the device, {} more than there is", fullest.name, base::to_string(arena),
                                   base::to_string(arena - outcome.problem.device)),
            .excess = arena - outcome.problem.device};
  if (!forecast.fits()) return {.refusal = forecast.reason};
  candidate.estimate.reason.clear();
  candidate.estimate.step_seconds = forecast.step_seconds;
  candidate.estimate.bubble = forecast.result.bubble_fraction();
  take_memory(fullest, forecast.outlined, candidate.estimate.memory);
  Simulated simulated{
      .exposed = forecast.result.exposed_fraction(), .moved = {}, .outlined = forecast.outlined && !train::is_outlined(decided)};
  for (std::size_t link = 0; link < executor::sim::kLinkNames.size(); ++link)
    simulated.moved.emplace_back(executor::sim::kLinkNames[link], forecast.result.bytes[link]);
  return {.simulated = std::move(simulated)};
}

bool has_few_buckets(const Candidate& candidate) {
  const Bytes elsewhere = candidate.estimate.memory.host + candidate.estimate.memory.disk;
  return elsewhere.count / std::max<std::int64_t>(1, candidate.choice.strategy.bucket.count) <= kMostBuckets;
}

std::int64_t passes_of(const Outcome& outcome, const planner::Choice& choice) {
  const std::int64_t lowerings = choice.strategy.recompute == strategy::Recompute::optimal ? 4 : 1;
  const bool outlined = may_be_outlined(choice) || train::is_outlined(train::decided(outcome.run, choice));
  constexpr std::int64_t kTilesOfAPass = 4;
  const Bytes tile = choice.strategy.tile;
  const std::int64_t tiles = tile.count > 0 ? std::max<std::int64_t>(1, outcome.problem.largest.count / tile.count / kTilesOfAPass) : 1;
  return lowerings * outcome.problem.layers * tiles * choice.micro_batches(outcome.problem) * (outlined ? 1 : choice.strategy.tensor);
}

}  // namespace plimsoll::cli

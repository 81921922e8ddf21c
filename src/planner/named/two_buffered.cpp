// The planner of PipeDream-2BW (Narayanan and others, ICML 2021): equal stages, all of them replicated alike. For every depth and width
// whose product is the devices, with and without recompute, the largest micro-batch that fits; of these, the highest throughput. Two
// versions of the weights are kept, and no flush parts batches, so a batch takes what its slowest stage takes.
#include <algorithm>

#include "planner/named/chain.h"
#include "planner/named/stage_costs.h"
#include "planner/space.h"
#include "strategy/stages.h"

namespace plimsoll::planner::named {

namespace {

std::vector<Stage> equal_stages(const Chain& chain, std::int64_t depth, bool again) {
  std::vector<Stage> stages;
  std::size_t first = 0;
  for (const std::int64_t layers : strategy::equal_layers(static_cast<std::int64_t>(chain.size()), depth)) {
    const std::size_t last = first + static_cast<std::size_t>(layers);
    stages.push_back({.first = first, .last = last, .data = chain.devices / depth, .tensor = 1, .again = again});
    first = last;
  }
  return stages;
}

// Infinite where the pipeline cannot be filled.
double seconds_per_sample(const Chain& chain, const std::vector<Stage>& stages) {
  const StageCosts costs(chain, 1);
  const auto depth = static_cast<std::int64_t>(stages.size());
  const std::int64_t width = stages.front().data;
  if (chain.micro_batches % width != 0 || chain.micro_batches / width < depth) return kNever;
  const auto replicas = static_cast<double>(width);
  double slowest = 0.0;
  double exchange = 0.0;
  for (const Stage& stage : stages) {
    double seconds = costs.seconds(stage.first, stage.last) + (stage.again ? costs.again(stage.first, stage.last) : 0.0);
    if (stage.last < chain.size()) seconds += 2.0 * static_cast<double>(costs.output(stage.last - 1)) / chain.bandwidth(chain.devices);
    slowest = std::max(slowest, seconds);
    exchange = std::max(exchange, 2.0 * (replicas - 1.0) / replicas * static_cast<double>(costs.weights(stage.first, stage.last)) /
                                      chain.bandwidth(chain.devices));
  }
  const double batch = static_cast<double>(chain.micro_batches) / replicas * slowest + exchange;
  return batch / static_cast<double>(chain.micro * chain.micro_batches);
}

bool fits(const Chain& chain, const std::vector<Stage>& stages) {
  const StageCosts costs(chain, 1);
  const auto depth = static_cast<std::int64_t>(stages.size());
  return std::all_of(stages.begin(), stages.end(), [&](const Stage& stage) {
    const std::int64_t whole = costs.kept(stage.first, stage.last, false);
    const std::int64_t held = stage.again ? depth * costs.kept(stage.first, stage.last, true) + whole : depth * whole;
    return costs.states(stage.first, stage.last) + costs.version(stage.first, stage.last) + held <= chain.device.count;
  });
}

}  // namespace

Answer two_buffered(std::span<const Chain> chains) {
  Answer best;
  const Chain& any = chains.front();
  for (const std::int64_t depth : divisors(any.devices)) {
    if (depth > static_cast<std::int64_t>(any.size())) continue;
    for (const bool again : {false, true}) {
      // From the largest micro-batch down: the first that fits is it.
      for (auto chain = chains.rbegin(); chain != chains.rend(); ++chain) {
        std::vector<Stage> stages = equal_stages(*chain, depth, again);
        if (!fits(*chain, stages) || seconds_per_sample(*chain, stages) == kNever) continue;
        const double seconds = seconds_per_sample(*chain, stages);
        if (seconds < best.objective) best = {.stages = std::move(stages), .objective = seconds, .micro = chain->micro};
        break;
      }
    }
  }
  return best;
}

Answer brute_two_buffered(std::span<const Chain> chains) {
  Answer best;
  for (std::size_t index = 0; index < chains.size(); ++index) {
    for (std::int64_t depth = 1; depth <= static_cast<std::int64_t>(chains[index].size()); ++depth) {
      if (chains[index].devices % depth != 0) continue;
      for (const bool again : {false, true}) {
        const auto possible = [&](const Chain& chain) {
          const std::vector<Stage> stages = equal_stages(chain, depth, again);
          return fits(chain, stages) && seconds_per_sample(chain, stages) < kNever;
        };
        if (!possible(chains[index])) continue;
        // A larger micro-batch that is possible rules this one out.
        if (std::any_of(chains.begin() + static_cast<std::ptrdiff_t>(index) + 1, chains.end(), possible)) continue;
        const std::vector<Stage> stages = equal_stages(chains[index], depth, again);
        const double seconds = seconds_per_sample(chains[index], stages);
        if (seconds < best.objective) best = {.stages = stages, .objective = seconds, .micro = chains[index].micro};
      }
    }
  }
  return best;
}

}  // namespace plimsoll::planner::named

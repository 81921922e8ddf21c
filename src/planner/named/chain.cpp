#include "planner/named/chain.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "planner/named/stage_costs.h"
#include "planner/space.h"

namespace plimsoll::planner::named {

namespace {

Layer layer_of(const BlockPrice& block) {
  return {.seconds = block.forward + block.backward_input + block.backward_weight,
          .again = block.full.again,
          .weights = block.gradients,
          .states = block.weights + block.gradients + block.optimizer,
          .version = block.weights,
          .kept = block.everything.bytes,
          .kept_again = block.full.bytes,
          .output = block.output};
}

void add(Layer& layer, const BlockPrice& end) {
  const Layer more = layer_of(end);
  layer.seconds += more.seconds;
  layer.weights += more.weights;
  layer.states += more.states;
  layer.version += more.version;
  layer.kept += more.kept;
  layer.kept_again += more.kept;
}

}  // namespace

const std::vector<Layer>& Chain::at(std::int64_t tensor) const {
  const auto found = std::find(tensor_degrees.begin(), tensor_degrees.end(), tensor);
  PLIMSOLL_CHECK(found != tensor_degrees.end(), "the chain has no prices for {} tensor ranks", tensor);
  return layers[static_cast<std::size_t>(found - tensor_degrees.begin())];
}

Chain chain_of(const Problem& problem, std::int64_t micro, double inside, double across) {
  Chain chain{.tensor_degrees = {},
              .layers = {},
              .devices = problem.ranks,
              .devices_per_node = problem.ranks_per_node,
              .micro = micro,
              .micro_batches = problem.global_batch / micro,
              .device = problem.device,
              .inside = inside,
              .across = across};
  for (const std::int64_t tensor : divisors(problem.ranks_per_node)) {
    if (problem.heads % tensor != 0) continue;
    const Prices prices = problem.prices({.tensor = tensor, .micro = micro, .sequence_parallel = false});
    if (!prices.reason.empty()) continue;
    std::vector<Layer> layers(static_cast<std::size_t>(problem.layers), layer_of(prices.layer));
    add(layers.front(), prices.embedding);
    add(layers.back(), prices.head);
    chain.tensor_degrees.push_back(tensor);
    chain.layers.push_back(std::move(layers));
  }
  return chain;
}

namespace {

// The first fine layer of the coarse one.
std::size_t begin_of(std::size_t index, std::size_t fine, std::size_t coarse) { return index * fine / coarse; }

}  // namespace

Chain coarse(const Chain& chain, std::size_t most) {
  Chain together = chain;
  const std::size_t count = std::min(most, chain.size());
  for (std::size_t degree = 0; degree < chain.layers.size(); ++degree) {
    together.layers[degree].assign(count, {});
    for (std::size_t index = 0; index < count; ++index) {
      Layer& sum = together.layers[degree][index];
      for (std::size_t layer = begin_of(index, chain.size(), count); layer < begin_of(index + 1, chain.size(), count); ++layer) {
        const Layer& more = chain.layers[degree][layer];
        sum.seconds += more.seconds;
        sum.again += more.again;
        sum.weights += more.weights;
        sum.states += more.states;
        sum.version += more.version;
        sum.kept += more.kept;
        sum.kept_again += more.kept_again;
        sum.output = more.output;
      }
    }
  }
  return together;
}

std::vector<Stage> refined(const Chain& fine, const Chain& coarse, std::vector<Stage> stages) {
  for (Stage& stage : stages) {
    stage.first = begin_of(stage.first, fine.size(), coarse.size());
    stage.last = begin_of(stage.last, fine.size(), coarse.size());
  }
  return stages;
}

double batch_seconds(const Chain& chain, const std::vector<Stage>& stages) {
  double through = 0.0;
  double slowest = 0.0;
  double exchange = 0.0;
  for (std::size_t index = 0; index < stages.size(); ++index) {
    const Stage& stage = stages[index];
    const StageCosts costs(chain, stage.tensor);
    double seconds = costs.seconds(stage.first, stage.last) + (stage.again ? costs.again(stage.first, stage.last) : 0.0);
    if (index + 1 < stages.size()) {
      const double rate = chain.bandwidth(stage.data * stage.tensor + stages[index + 1].data * stages[index + 1].tensor);
      seconds += 2.0 * static_cast<double>(costs.output(stage.last - 1)) / rate;
    }
    // A replica gets every data-th micro-batch.
    through += seconds;
    slowest = std::max(slowest, seconds / static_cast<double>(stage.data));
    const auto replicas = static_cast<double>(stage.data);
    exchange = std::max(exchange, 2.0 * (replicas - 1.0) / replicas * static_cast<double>(costs.weights(stage.first, stage.last)) /
                                      chain.bandwidth(stage.data * stage.tensor));
  }
  const double first_round = static_cast<double>(stages.empty() ? 1 : stages.front().data);
  return through + std::max(0.0, static_cast<double>(chain.micro_batches) - first_round) * slowest + exchange;
}

std::string describe(const std::vector<Stage>& stages) {
  std::vector<std::string> parts;
  for (const Stage& stage : stages) {
    parts.push_back(fmt::format("layers {}-{} on {} x {}{}", stage.first + 1, stage.last, stage.data, stage.tensor,
                                stage.again ? " with recompute" : ""));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace plimsoll::planner::named

#include "planner/price_table.h"

#include <algorithm>

#include "base/error.h"
#include "strategy/stages.h"

namespace plimsoll::planner {

namespace {

using strategy::Recompute;
using strategy::StagePartition;

// The head holds the loss and is never run twice, and the embedding keeps nothing worth it.
const Keeping& keeping_of(const BlockPrice& block, Recompute recompute, bool is_layer) {
  if (!is_layer) return block.everything;
  switch (recompute) {
    case Recompute::full: return block.full;
    case Recompute::selective: return block.selective;
    case Recompute::none:
    case Recompute::optimal: return block.everything;
  }
  return block.everything;
}

void add(StagePrice& stage, const BlockPrice& block, const Keeping& keeping, std::int64_t count) {
  const auto times = static_cast<double>(count);
  stage.forward += times * block.forward;
  stage.backward_input += times * (block.backward_input + keeping.again);
  stage.backward_weight += times * block.backward_weight;
  stage.again += times * keeping.again;
  stage.gathered_again += times * block.gathered_again;
  stage.tensor_seconds += times * block.tensor_seconds;
  stage.flops += times * (block.flops + keeping.flops);
  stage.kept += count * keeping.bytes;
  stage.kept_for_weights += count * keeping.weight_bytes;
  // What is made again is there for one block at a time; a forward pass that keeps everything has nothing beside what is kept.
  const std::int64_t made_again = std::max<std::int64_t>(0, block.everything.bytes - keeping.bytes);
  const std::int64_t beside_forward = made_again > 0 ? block.temporary_forward : 0;
  stage.temporary = std::max({stage.temporary, beside_forward, block.temporary_backward + made_again});
  stage.weights += count * block.weights;
  stage.gradients += count * block.gradients;
  stage.optimizer += count * block.optimizer;
  stage.update += times * block.update;
}

}  // namespace

PriceKey key_of(const Problem& problem, const Choice& choice) {
  const strategy::Offload& offload = choice.strategy.offload;
  return {.tensor = choice.strategy.tensor,
          .micro = choice.micro,
          .sequence_parallel = choice.strategy.sequence_parallel,
          .masters = offload.optimizer.anything() && offload.optimizer != offload.params,
          .rows = choice.strategy.embedding_rows == strategy::EmbeddingRows::disk,
          .precision = choice.precision,
          .accumulates = choice.micro_batches(problem) > 1};
}

const Prices& PriceTable::of(const Problem& problem, const Choice& choice) {
  const PriceKey key = key_of(problem, choice);
  const auto found = known_.find(key);
  return found != known_.end() ? found->second : known_.emplace(key, price_(key)).first->second;
}

std::vector<std::int64_t> PriceTable::layers_of(const Problem& problem, const Choice& choice) {
  const strategy::Strategy& strategy = choice.strategy;
  const std::int64_t stages = strategy.pipe * strategy.chunks;
  if (strategy.partition == StagePartition::listed) {
    std::vector<std::int64_t> layers;
    for (const strategy::Stage& stage : strategy.stages) layers.push_back(stage.blocks);
    return layers;
  }
  if (strategy.partition == StagePartition::equal || stages == 1) return strategy::equal_layers(problem.layers, stages);
  const Prices& prices = of(problem, choice);
  const auto cost = [&](const BlockPrice& block, bool is_layer) {
    return block.forward + block.backward_input + block.backward_weight + keeping_of(block, strategy.recompute, is_layer).again;
  };
  std::vector<double> costs(static_cast<std::size_t>(problem.layers) + 2, cost(prices.layer, true));
  costs.front() = cost(prices.embedding, false);
  costs.back() = cost(prices.head, false);
  return strategy::balanced_layers(costs, stages);
}

const std::vector<StagePrice>& PriceTable::stages_of(const Problem& problem, const Choice& choice) {
  const strategy::Strategy& strategy = choice.strategy;
  const bool listed = strategy.partition == StagePartition::listed;
  std::vector<StagePrice>& stages =
      listed ? listed_ : stages_[{key_of(problem, choice), strategy.recompute, strategy.partition, strategy.pipe * strategy.chunks}];
  if (!listed && !stages.empty()) return stages;
  const Prices& prices = of(problem, choice);
  const std::vector<std::int64_t> layers = layers_of(problem, choice);
  stages.assign(layers.size(), {});
  for (std::size_t index = 0; index < stages.size(); ++index) {
    StagePrice& stage = stages[index];
    stage.layers = layers[index];
    stage.first = index == 0;
    stage.last = index + 1 == stages.size();
    if (stage.first) add(stage, prices.embedding, keeping_of(prices.embedding, strategy.recompute, false), 1);
    add(stage, prices.layer, keeping_of(prices.layer, strategy.recompute, true), layers[index]);
    if (stage.last) add(stage, prices.head, keeping_of(prices.head, strategy.recompute, false), 1);
    if (stage.last && !stage.first) {
      stage.weights += prices.tied_weights;
      stage.gradients += prices.tied_gradients;
      stage.optimizer += prices.tied_optimizer;
    }
    // What passes between two stages is kept by the one that gets it.
    if (!stage.first) stage.kept += prices.layer.output;
    if (!stage.last) stage.kept -= prices.layer.output;
    stage.kept += prices.inputs;
    // Without a pipeline, no way through the blocks keeps less than one of them at a time.
    if (strategy.recompute == Recompute::optimal && strategy.pipe == 1)
      stage.kept = prices.inputs + std::min(prices.layer.everything.bytes, prices.layer.selective.bytes);
  }
  return stages;
}

}  // namespace plimsoll::planner

#include "strategy/stages.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace plimsoll::strategy {

namespace {

constexpr double kOperationsPerByte = 10.0;

void require_layers(const BlockChain& chain, const Strategy& strategy) {
  const std::int64_t stages = strategy.pipe * strategy.chunks;
  if (stages <= chain.most_stages()) return;
  base::not_legal(
      "this strategy cannot be run: \"pipe\" {} x \"chunks\" {} makes {} stages, but the model has {} layers; use at most {} stages{}",
      strategy.pipe, strategy.chunks, stages, chain.layers, chain.most_stages(),
      chain.opens && chain.closes() ? ", of which the first has the embedding alone and the last the head" : "");
}

// From layers of each stage to the stage of each block.
std::vector<std::int32_t> spread(const BlockChain& chain, const std::vector<std::int64_t>& layers) {
  std::vector<std::int32_t> stage_of(static_cast<std::size_t>(chain.before), 0);
  for (std::size_t stage = 0; stage < layers.size(); ++stage)
    stage_of.insert(stage_of.end(), static_cast<std::size_t>(layers[stage]), static_cast<std::int32_t>(stage));
  stage_of.insert(stage_of.end(), static_cast<std::size_t>(chain.after), static_cast<std::int32_t>(layers.size()) - 1);
  return stage_of;
}

std::vector<std::int64_t> listed_layers(std::int64_t layers, const Strategy& strategy) {
  const std::int64_t stages = strategy.pipe * strategy.chunks;
  if (static_cast<std::int64_t>(strategy.stages.size()) != stages) {
    base::not_legal("this strategy cannot be run: \"stages\" lists {} stages, but \"pipe\" {} x \"chunks\" {} makes {}",
                    strategy.stages.size(), strategy.pipe, strategy.chunks, stages);
  }
  std::vector<std::int64_t> counts;
  for (const Stage& stage : strategy.stages) counts.push_back(stage.blocks);
  const std::int64_t listed = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (listed != layers) {
    base::not_legal("this strategy cannot be run: \"stages\" deals out {} layers, but the model has {}; use {} {}, or \"equal\"", listed,
                    layers, std::abs(layers - listed), listed < layers ? "more" : "fewer");
  }
  return counts;
}

}  // namespace

BlockChain chain_of(const graph::Graph& graph) {
  using graph::BlockKind;
  BlockChain chain;
  for (std::uint32_t index = 0; index < graph.blocks.size(); ++index) {
    const BlockKind kind = graph.blocks[graph::BlockId{index}].kind;
    const bool leads = kind == BlockKind::step || kind == BlockKind::opening;
    if ((leads && chain.layers + chain.after > 0) || (kind == BlockKind::layer && chain.after > 0)) {
      base::bad_input("block {} is {}, but comes after one that is {}; expected opening blocks, then layers, then closing blocks",
                      graph.blocks[graph::BlockId{index}].name, name_of(kind), chain.after > 0 ? "closing" : "a layer");
    }
    chain.opens = chain.opens || kind == BlockKind::opening;
    ++(leads ? chain.before : kind == BlockKind::layer ? chain.layers : chain.after);
  }
  return chain;
}

std::vector<std::int64_t> equal_layers(std::int64_t layers, std::int64_t stages, bool closes) {
  if (stages > layers) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), 1);
    if (closes) counts.back() = 0;
    if (stages == layers + (closes ? 2 : 1)) counts.front() = 0;
    return counts;
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers / stages);
  const std::int64_t left = layers % stages;
  for (std::int64_t extra = 0; extra < left; ++extra) ++counts[extra + 2 < stages ? static_cast<std::size_t>(extra + 1) : 0];
  return counts;
}

std::vector<double> block_costs(const graph::Graph& graph) {
  std::vector<double> costs(graph.blocks.size(), 0.0);
  for (const graph::Node& node : graph.nodes) {
    if (node.phase != graph::Phase::forward && node.phase != graph::Phase::backward) continue;
    const ops::Work work = ops::definition_of(node.op).work(node.op, graph.types(node.inputs), graph.types(node.outputs));
    costs[node.block.index] += work.flops + kOperationsPerByte * work.bytes;
  }
  return costs;
}

std::vector<std::int32_t> balanced_parts(const std::vector<double>& costs, std::int32_t parts) {
  const std::size_t links = costs.size();
  std::vector<double> before(links + 1, 0.0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // best[k][n]: the costliest of k parts of the first n links; cut[k][n]: where the last of them begins.
  std::vector<std::vector<double>> best(static_cast<std::size_t>(parts) + 1, std::vector<double>(links + 1, kNever));
  std::vector<std::vector<std::size_t>> cut(best.size(), std::vector<std::size_t>(links + 1, 0));
  best[0][0] = 0.0;
  for (std::size_t part = 1; part < best.size(); ++part) {
    for (std::size_t end = part; end <= links; ++end) {
      for (std::size_t begin = part - 1; begin < end; ++begin) {
        const double costliest = std::max(best[part - 1][begin], before[end] - before[begin]);
        if (costliest < best[part][end]) {
          best[part][end] = costliest;
          cut[part][end] = begin;
        }
      }
    }
  }
  std::vector<std::int32_t> part_of(links, 0);
  std::size_t end = links;
  for (std::int32_t part = parts; part > 0; --part) {
    const std::size_t begin = cut[static_cast<std::size_t>(part)][end];
    std::fill(part_of.begin() + static_cast<std::ptrdiff_t>(begin), part_of.begin() + static_cast<std::ptrdiff_t>(end), part - 1);
    end = begin;
  }
  return part_of;
}

std::vector<std::int64_t> balanced_layers(const std::vector<double>& costs, std::int64_t stages) {
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages), 0);
  for (const std::int32_t part : balanced_parts(costs, static_cast<std::int32_t>(stages))) ++layers[static_cast<std::size_t>(part)];
  --layers.front();
  --layers.back();
  return layers;
}

namespace {

// The blocks before the layers are one link of the chain, and those after them: neither is torn apart. The step's own is no stage alone.
std::vector<std::int32_t> stages_by_cost(const graph::Graph& graph, const BlockChain& chain, std::int32_t stages) {
  const std::vector<double> block_cost = block_costs(graph);
  std::vector<std::size_t> link_of(block_cost.size());
  std::vector<double> costs;
  for (std::size_t block = 0; block < block_cost.size(); ++block) {
    const auto number = static_cast<std::int64_t>(block);
    const bool first_layer = number == chain.before && !chain.opens;
    const bool joins = number > 0 && (number < chain.before || first_layer || number > chain.before + chain.layers);
    if (!joins || costs.empty()) costs.push_back(0.0);
    costs.back() += block_cost[block];
    link_of[block] = costs.size() - 1;
  }
  const std::vector<std::int32_t> part_of = balanced_parts(costs, stages);
  std::vector<std::int32_t> stage_of;
  for (const std::size_t link : link_of) stage_of.push_back(part_of[link]);
  return stage_of;
}

}  // namespace

std::vector<std::int32_t> stages_of(const graph::Graph& graph, const Strategy& strategy) {
  const auto stages = static_cast<std::int32_t>(strategy.pipe * strategy.chunks);
  if (stages == 1) return std::vector<std::int32_t>(graph.blocks.size(), 0);
  const BlockChain chain = chain_of(graph);
  require_layers(chain, strategy);
  switch (strategy.partition) {
    case StagePartition::equal: return spread(chain, equal_layers(chain.layers, stages, chain.closes()));
    case StagePartition::by_cost: return stages_by_cost(graph, chain, stages);
    case StagePartition::listed: return spread(chain, listed_layers(chain.layers, strategy));
  }
  return {};
}

}  // namespace plimsoll::strategy

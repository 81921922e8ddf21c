#include "train/foresight/prices.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "config/run.h"
#include "cost/operator.h"
#include "cost/transfer.h"
#include "graph/programs/programs.h"
#include "lowering/passes/block_chain.h"
#include "lowering/passes/encode_activations.h"
#include "lowering/passes/recompute.h"
#include "lowering/passes/split_pipe.h"
#include "lowering/passes/split_tensor.h"
#include "lowering/rows.h"
#include "plan/plan.h"

namespace plimsoll::train {

namespace {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;
using planner::BlockPrice;
using planner::Keeping;
using strategy::Recompute;

// The block of a graph of two layers that stands for all: not the first, which the embedding feeds.
constexpr std::size_t kEmbedding = 0;
constexpr std::size_t kLayer = 2;
constexpr std::size_t kHead = 3;
constexpr std::int64_t kLayersPriced = 2;

class Pricing {
 public:
  Pricing(const PriceInputs& inputs, const planner::PriceKey& key) : inputs_(inputs), key_(key) {
    const std::int64_t per_node = std::min(inputs.cluster.devices_per_node, inputs.ranks);
    const std::int64_t cores = inputs.cluster.device.cores;
    threads_ = cores > 0 ? std::max<std::int64_t>(1, cores / per_node) : 0;
  }

  planner::Prices run() {
    model::Model model = inputs_.model;
    model.layers = kLayersPriced;
    model::Training training = inputs_.training;
    training.micro_batch.samples = key_.micro;
    training.accumulates = key_.accumulates;
    training.fused_head = key_.tensor == 1;
    training.masters = key_.masters;
    if (!key_.precision.empty()) training.precision = config::precision_named(key_.precision);
    strategy::Strategy strategy;
    strategy.sequence_parallel = key_.sequence_parallel;
    const Graph whole = graph::training_graph(model, training);
    Graph graph = lowering::split_over_tensor(whole, {.members = key_.tensor, .place = 0}, strategy);
    if (key_.tensor > 1 && inputs_.communication.activations.any())
      graph = lowering::encode_activations(graph, inputs_.communication.activations);
    passes_ = lowering::passes_of(graph);
    chain_ = lowering::chain_of(graph, passes_, true);
    blocks_.assign(passes_.size(), {});
    add_seconds(lowering::split_backward(graph, false));
    add_gathered_again(lowering::split_backward(graph));
    add_states(graph);
    for (std::size_t index = 0; index < blocks_.size(); ++index) {
      const solvers::ChainStage& stage = chain_.stages[index];
      blocks_[index].output = stage.output;
      blocks_[index].temporary_forward = stage.temporary;
      blocks_[index].temporary_backward = std::max<std::int64_t>(0, stage.forms[0].temporary + stage.gradient - overwritten(graph, index));
    }
    add_keeping(graph, Recompute::none, &BlockPrice::everything);
    add_keeping(graph, Recompute::selective, &BlockPrice::selective);
    add_keeping(graph, Recompute::full, &BlockPrice::full);
    planner::Prices prices{.embedding = blocks_[kEmbedding], .layer = blocks_[kLayer], .head = blocks_[kHead]};
    add_tied(graph, prices);
    add_types(graph, prices);
    for (const graph::Value& value : graph.values) {
      if (value.role == graph::Role::input) prices.inputs += value.type.bytes();
    }
    if (key_.rows) keep_rows(whole, graph, prices);
    return prices;
  }

 private:
  // What most are of says of what types codecs are given.
  void add_types(const Graph& graph, planner::Prices& prices) const {
    for (const graph::Parameter& parameter : graph.parameters) {
      if (parameter.frozen || graph.values[parameter.weight].block != passes_[kLayer].block) continue;
      prices.weight_type = graph.values[parameter.weight].type.dtype;
      prices.gradient_type = graph.values[parameter.gradient].type.dtype;
      prices.output_type = prices.weight_type;
    }
    prices.output_columns = inputs_.model.width;
  }

  // The table is on disk, with its weights in f32; what is here has room for a step's tokens.
  void keep_rows(const Graph& whole, const Graph& graph, planner::Prices& prices) const {
    const graph::Parameter* table = rows_may_leave(inputs_.model) ? lowering::token_table(whole) : nullptr;
    if (table == nullptr || inputs_.tokens == 0)
      base::not_legal("\"embedding_rows\" is \"disk\", but the model needs its token table for more than looking up tokens");
    const base::Shape& shape = whole.values[table->weight].type.shape;
    const double share = std::min(1.0, static_cast<double>(inputs_.tokens) / static_cast<double>(shape[0]));
    const auto part = [&](std::int64_t bytes) { return static_cast<std::int64_t>(share * static_cast<double>(bytes)); };
    const auto here = std::find_if(graph.parameters.begin(), graph.parameters.end(),
                                   [&](const graph::Parameter& parameter) { return parameter.name == table->name; });
    PLIMSOLL_CHECK(here != graph.parameters.end(), "{} is on no tensor rank", table->name);
    const auto leave = [&](std::int64_t& all, std::int64_t bytes) { all -= bytes - part(bytes); };
    BlockPrice& embedding = prices.embedding;
    const auto before = static_cast<double>(std::max<std::int64_t>(1, embedding.gradients));
    leave(embedding.weights, graph.values[here->weight].type.bytes());
    leave(embedding.gradients, graph.values[here->gradient].type.bytes());
    leave(embedding.optimizer, optimizer_bytes(graph, *here));
    embedding.update *= static_cast<double>(embedding.gradients) / before;
    const base::TensorType masters{base::DType::f32, shape};
    const std::int64_t record = plan::record_bytes(masters, 1 + table->states.size()).count;
    prices.table = record * shape[0];
    prices.table_moved = record * std::min(shape[0], inputs_.tokens);
  }

  BlockPrice* price_of(graph::BlockId block) {
    for (std::size_t index = 0; index < passes_.size(); ++index) {
      if (passes_[index].block == block) return &blocks_[index];
    }
    return nullptr;
  }

  // The largest kept value in whose place a backward pass puts its result: both are never there.
  static std::int64_t overwritten_by(const Graph& graph, const Node& node, const std::vector<ValueId>& saved) {
    std::int64_t most = 0;
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      const ValueId input = node.inputs[static_cast<std::size_t>(alias.input)];
      if (!alias.required && std::find(saved.begin(), saved.end(), input) != saved.end())
        most = std::max(most, graph.values[input].type.bytes());
    }
    return most;
  }
  std::int64_t overwritten(const Graph& graph, std::size_t block) const {
    std::int64_t most = 0;
    for (graph::NodeId id : passes_[block].backward) most = std::max(most, overwritten_by(graph, graph.nodes[id], passes_[block].saved));
    return most;
  }

  double seconds_of(const Graph& graph, const Node& node) const {
    const std::vector<base::TensorType> inputs = graph.types(node.inputs);
    const std::vector<base::TensorType> outputs = graph.types(node.outputs);
    if (!ops::is_collective(node.op)) return cost::operator_seconds(inputs_.cluster.device, node.op, inputs, outputs, threads_);
    const auto& collective = std::get<ops::Collective>(node.op);
    double bytes = 0.0;
    for (const base::TensorType& type : collective.kind == ops::CollectiveKind::all_gather ? outputs : inputs)
      bytes += static_cast<double>(type.bytes());
    return cost::slowest_collective(inputs_.cluster, collective.kind, bytes,
                                    cost::groups_of(inputs_.cluster, collective.members, inputs_.tensor_stride, inputs_.ranks))
        .seconds;
  }

  double flops_of(const Graph& graph, const Node& node) const {
    return cost::counted_flops(node.op, graph.types(node.inputs), graph.types(node.outputs));
  }

  void add_seconds(const Graph& graph) {
    for (const Node& node : graph.nodes) {
      BlockPrice* price = price_of(node.block);
      if (price == nullptr) continue;
      const double seconds = seconds_of(graph, node);
      switch (node.phase) {
        case Phase::forward: price->forward += seconds; break;
        case Phase::backward: price->backward_input += seconds; break;
        case Phase::backward_weight: price->backward_weight += seconds; break;
        case Phase::norm:
        case Phase::update: price->update += seconds; break;
        default: break;
      }
      if (!graph::runs_per_micro_batch(node.phase)) continue;
      price->flops += flops_of(graph, node);
      if (ops::is_collective(node.op)) price->tensor_seconds += seconds;
    }
  }

  // What a schedule that has the gradients of weights apart gathers for them a second time.
  void add_gathered_again(const Graph& graph) {
    for (const Node& node : graph.nodes) {
      BlockPrice* price = price_of(node.block);
      if (price != nullptr && node.phase == Phase::backward_weight) price->gathered_again += seconds_of(graph, node);
    }
    for (BlockPrice& block : blocks_) block.gathered_again -= block.backward_weight;
  }

  void add_states(const Graph& graph) {
    for (const graph::Parameter& parameter : graph.parameters) {
      BlockPrice* price = price_of(graph.values[parameter.weight].block);
      PLIMSOLL_CHECK(price != nullptr, "{} belongs to no block", parameter.name);
      price->weights += graph.values[parameter.weight].type.bytes();
      if (parameter.frozen) continue;
      price->gradients += graph.values[parameter.gradient].type.bytes();
      price->optimizer += optimizer_bytes(graph, parameter);
    }
  }

  static std::int64_t optimizer_bytes(const Graph& graph, const graph::Parameter& parameter) {
    std::int64_t bytes = parameter.master == parameter.weight ? 0 : graph.values[parameter.master].type.bytes();
    for (ValueId state : parameter.states) bytes += graph.values[state].type.bytes();
    return bytes;
  }

  // What the forward pass leaves for later, and what runs again, with one way to recompute.
  void add_keeping(const Graph& graph, Recompute kind, Keeping BlockPrice::* form) {
    const Graph after = lowering::recompute(graph, lowering::order_of_recompute(graph, {.kind = kind, .accumulates = true}));
    std::vector<bool> read(after.values.size(), false);
    for (const Node& node : after.nodes) {
      if (node.phase == Phase::recompute || node.phase == Phase::backward) {
        for (ValueId id : node.inputs) read[id.index] = true;
      }
      BlockPrice* price = price_of(node.block);
      if (price == nullptr || node.phase != Phase::recompute) continue;
      (price->*form).again += seconds_of(after, node);
      (price->*form).flops += flops_of(after, node);
    }
    const std::set<ValueId> gradients = lowering::weight_gradients(after);
    add_weight_bytes(lowering::split_backward(after), gradients, form);
    for (std::uint32_t index = 0; index < after.values.size(); ++index) {
      const graph::Value& value = after.values[ValueId{index}];
      if (!read[index] || !value.producer.valid() || gradients.contains(ValueId{index})) continue;
      const Node& producer = after.nodes[value.producer];
      BlockPrice* price = price_of(producer.block);
      if (producer.phase == Phase::forward && price != nullptr) (price->*form).bytes += value.type.bytes();
    }
  }

  // What the gradients of weights read, where they come later than those of inputs.
  void add_weight_bytes(const Graph& graph, const std::set<ValueId>& gradients, Keeping BlockPrice::* form) {
    std::set<std::pair<std::uint32_t, ValueId>> seen;
    for (const Node& node : graph.nodes) {
      BlockPrice* price = price_of(node.block);
      if (price == nullptr || node.phase != Phase::backward_weight) continue;
      for (ValueId id : node.inputs) {
        const graph::Value& value = graph.values[id];
        const bool made_before = value.producer.valid() && graph.nodes[value.producer].phase != Phase::backward_weight;
        if (made_before && !gradients.contains(id) && seen.insert({node.block.index, id}).second)
          (price->*form).weight_bytes += value.type.bytes();
      }
    }
  }

  // A weight that the embedding and the head share lies on both ends of a pipeline.
  void add_tied(const Graph& graph, planner::Prices& prices) const {
    if (!inputs_.model.tied) return;
    for (const graph::Parameter& parameter : graph.parameters) {
      const bool read_by_head = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
        return node.block == passes_[kHead].block &&
               std::find(node.inputs.begin(), node.inputs.end(), parameter.weight) != node.inputs.end();
      });
      if (!read_by_head || graph.values[parameter.weight].block != passes_[kEmbedding].block) continue;
      prices.tied_weights += graph.values[parameter.weight].type.bytes();
      if (parameter.frozen) continue;
      prices.tied_gradients += graph.values[parameter.gradient].type.bytes();
      prices.tied_optimizer += optimizer_bytes(graph, parameter);
    }
  }

  const PriceInputs& inputs_;
  planner::PriceKey key_;
  std::int64_t threads_ = 0;
  std::vector<lowering::BlockPasses> passes_;
  solvers::Chain chain_;
  std::vector<BlockPrice> blocks_;
};

}  // namespace

bool rows_may_leave(const model::Model& model) { return !model.tied && model.pad_token < 0; }

planner::Prices prices_of(const PriceInputs& inputs, const planner::PriceKey& key) {
  try {
    return Pricing(inputs, key).run();
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    planner::Prices none;
    none.reason = error.what();
    return none;
  }
}

namespace {

ops::Tier tier_named(planner::Tier tier) {
  switch (tier) {
    case planner::Tier::device: return ops::Tier::device;
    case planner::Tier::host: return ops::Tier::host;
    case planner::Tier::disk: return ops::Tier::disk;
  }
  return ops::Tier::device;
}

}  // namespace

namespace {

// A collective that was asked for. A search asks for the same few thousand millions of times.
struct Asked {
  planner::Wires::Kind kind;
  std::int64_t bytes, members, stride;

  bool operator==(const Asked&) const = default;
};
struct HashOfAsked {
  std::size_t operator()(const Asked& asked) const {
    std::size_t hash = static_cast<std::size_t>(asked.kind);
    for (const std::int64_t part : {asked.bytes, asked.members, asked.stride})
      hash = (hash ^ static_cast<std::size_t>(part)) * 0x9E3779B97F4A7C15ull + (hash >> 29);
    return hash;
  }
};

}  // namespace

planner::Wires wires_of(const cluster::Cluster& cluster, std::int64_t ranks) {
  const std::int64_t users = std::min(cluster.devices_per_node, ranks);
  const auto known = std::make_shared<std::unordered_map<Asked, double, HashOfAsked>>();
  const auto layouts = std::make_shared<std::map<std::pair<std::int64_t, std::int64_t>, std::vector<cost::Group>>>();
  return {.collective =
              [=](planner::Wires::Kind kind, std::int64_t bytes, std::int64_t members, std::int64_t stride) {
                const auto [found, fresh] = known->try_emplace({kind, bytes, members, stride});
                if (!fresh) return found->second;
                const auto kind_of = kind == planner::Wires::Kind::all_reduce       ? ops::CollectiveKind::all_reduce
                                     : kind == planner::Wires::Kind::reduce_scatter ? ops::CollectiveKind::reduce_scatter
                                                                                    : ops::CollectiveKind::all_gather;
                const auto [groups, unseen] = layouts->try_emplace({members, stride});
                if (unseen) groups->second = cost::groups_of(cluster, members, stride, ranks);
                found->second = cost::slowest_collective(cluster, kind_of, static_cast<double>(bytes), groups->second).seconds;
                return found->second;
              },
          .message =
              [=](std::int64_t bytes, std::int64_t stride, std::int64_t places, std::int64_t place) {
                const bool far = cost::leaves_node(cluster, stride, places, place);
                const std::int64_t sharing = far ? cost::users_across(cluster, stride, ranks) : users;
                return planner::Wires::Hop{.seconds = cost::message(cluster, static_cast<double>(bytes), far, sharing).seconds, .far = far};
              },
          .slowed = cluster.device.cores > 0 ? 0.0 : 1.0 - cluster.device.beside_collective(),
          .copy =
              [=](std::int64_t bytes, planner::Tier tier) {
                return cost::copy(cluster, ops::Tier::device, tier_named(tier), static_cast<double>(bytes), users).seconds;
              },
          .host_update =
              [=](std::int64_t gradients, std::int64_t weights, std::int64_t optimizer, std::int64_t ranks_of_node) {
                const double out =
                    cost::copy(cluster, ops::Tier::device, ops::Tier::host, static_cast<double>(gradients), ranks_of_node).seconds;
                const double back =
                    cost::copy(cluster, ops::Tier::host, ops::Tier::device, static_cast<double>(weights), ranks_of_node).seconds;
                // Masters and moments are read and written, gradients read, weights written; copies run beside it, block by block.
                const double moved = static_cast<double>(2 * optimizer + gradients + weights) * static_cast<double>(ranks_of_node);
                const double update = cluster.host.bandwidth > 0.0 ? moved / cluster.host.bandwidth : 0.0;
                return std::max({out, update, back});
              }};
}

double model_flops(const PriceInputs& inputs) {
  const planner::Prices prices = prices_of(inputs, {.tensor = 1, .micro = 1});
  return prices.embedding.flops + static_cast<double>(inputs.model.layers) * prices.layer.flops + prices.head.flops;
}

}  // namespace plimsoll::train

#include "train/foresight/planning.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "train/foresight/prices.h"

namespace plimsoll::train {

namespace {

constexpr std::int64_t kMostNodes = 1 << 20;

// On a processor the host's memory is the device's: it is another tier only where the run gives it a limit. On this machine a disk is used
// where the run says which.
bool may_use_host(const config::Run& run, const cluster::Cluster& cluster) {
  if (cluster.find(cluster::Reach::host) == nullptr) return false;
  return run.limits.host.count > 0 || cluster.device.cores == 0;
}
bool may_use_disk(const config::Run& run, const cluster::Cluster& cluster) {
  if (cluster.find(cluster::Reach::disk) == nullptr) return false;
  return run.limits.disk.count > 0 || !run.limits.disk_path.empty() || (cluster.device.cores == 0 && cluster.name != "this");
}

// What "auto" may be: types that the device has a rate for. 8-bit products are never chosen for somebody who did not ask for them.
std::vector<std::string> precisions_of(const config::Run& run, const cluster::Cluster& cluster) {
  if (!run.precision_auto) return {""};
  const auto has = [&](base::DType dtype) { return cluster.device.rates.contains(dtype); };
  std::vector<std::string> names;
  if (has(base::DType::bf16)) names.emplace_back("bf16");
  if (has(base::DType::f16) && !has(base::DType::bf16)) names.emplace_back("fp16");
  names.emplace_back("f32");
  return names;
}

// What the search leaves as it is. Listed stages that have the degrees of all get them from the search where these are open.
strategy::Strategy rest_of(const config::Run& run) {
  strategy::Strategy rest;
  rest.more = run.strategy.more;
  rest.communication = run.strategy.communication;
  if (run.strategy_auto) return rest;
  rest = run.strategy;
  if (rest.own_degrees()) return rest;
  for (strategy::Stage& stage : rest.stages) stage.data = stage.tensor = 0;
  return rest;
}

base::DType product_type(model::Precision precision) {
  switch (precision) {
    case model::Precision::f32: return base::DType::f32;
    case model::Precision::bf16: return base::DType::bf16;
    case model::Precision::fp16: return base::DType::f16;
    case model::Precision::fp8: return base::DType::f8e4m3;
  }
  return base::DType::f32;
}

bool anything_fits(const config::Run& run, const planner::Problem& problem) {
  planner::Estimator estimator(problem);
  planner::SearchOptions options;
  options.first_that_fits = true;
  return !planner::search(estimator, planner::lean_space(problem, pins_of(run), rest_of(run)), options).candidates.empty();
}

bool anything_fits(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks) {
  return anything_fits(run, planning_problem(run, cluster, ranks));
}

// Whether a strategy that fits keeps the pace.
bool is_fast(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks, const Pace& pace) {
  const planner::Problem problem = planning_problem(run, cluster, ranks);
  planner::Estimator estimator(problem);
  planner::SearchOptions options;
  options.first_that_fits = true;
  options.within_seconds = longest_step(run, cluster, problem, pace);
  return !planner::search(estimator, planner::whole_space(problem, pins_of(run), rest_of(run)), options).candidates.empty();
}

bool fits_on_nodes(const config::Run& run, cluster::Cluster cluster, std::int64_t nodes) {
  cluster.nodes = nodes;
  if (anything_fits(run, cluster, cluster.devices())) return true;
  // A small run need not use all of one node.
  const std::vector<std::int64_t> fewer = nodes == 1 ? planner::divisors(cluster.devices_per_node) : std::vector<std::int64_t>{};
  return std::any_of(fewer.begin(), fewer.end(), [&](std::int64_t ranks) { return anything_fits(run, cluster, ranks); });
}

// Heads come in eights where there are many, so that tensor ranks can share them out.
std::int64_t heads_at(std::int64_t step) { return step < 8 ? step : 8 * (step - 7); }

constexpr std::int64_t kMostSteps = 1 << 16;

}  // namespace

void require_precision(const config::Run& run, const cluster::Cluster& cluster) {
  const cluster::Device& device = cluster.device;
  // A processor computes in any type, at the rate of f32; what this machine's GPU can do is seen when it is used.
  if (run.precision_auto || device.cores > 0 || cluster.name == "this" || device.rates.contains(product_type(run.precision))) return;
  std::vector<std::string_view> known;
  for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16, model::Precision::fp16, model::Precision::fp8}) {
    if (device.rates.contains(product_type(precision))) known.push_back(config::name_of(precision));
  }
  base::not_legal("{}: \"precision\" is \"{}\", and {} of \"{}\" has no products of that type; expected one of {}", run.where("precision"),
                  config::name_of(run.precision), device.name.empty() ? "the device" : device.name, cluster.name, fmt::join(known, ", "));
}

planner::Problem planning_problem(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks) {
  require_precision(run, cluster);
  if (ranks > cluster.devices()) {
    base::not_legal("{}: the run asks for {} ranks, but the cluster \"{}\" has {} node{} of {} device{}; use at most {}", run.name, ranks,
                    cluster.name, cluster.nodes, cluster.nodes == 1 ? "" : "s", cluster.devices_per_node,
                    cluster.devices_per_node == 1 ? "" : "s", cluster.devices());
  }
  const std::int64_t per_node = std::min(ranks, cluster.devices_per_node);
  auto inputs = std::make_shared<PriceInputs>(PriceInputs{.model = run.model,
                                                          .training = run.training(),
                                                          .cluster = cluster,
                                                          .ranks = ranks,
                                                          .tensor_stride = rest_of(run).stride(ops::Axis::tensor),
                                                          .communication = run.strategy.communication});
  inputs->training.micro_batch.sequence = run.batch.sequence;
  inputs->tokens = run.batch.global * run.batch.sequence;
  // As a forecast and training count (forecast.cpp, setup.cpp): ranks on a processor share its memory with what they have in the host's
  // tier; a limit is each rank's own.
  const bool processor = cluster.device.cores > 0;
  const bool limited = run.limits.device.count > 0;
  const base::Bytes whole_device = cluster.device.memory - cluster.device.reserve;
  const base::Bytes device = limited && run.limits.device < cluster.device.memory ? run.limits.device
                             : processor && !limited                              ? base::Bytes{whole_device.count / per_node}
                                                                                  : whole_device;
  const base::Bytes host_memory = processor && cluster.host.memory.count == 0 ? cluster.device.memory : cluster.host.memory;
  const planner::Prices whole = prices_of(*inputs, {.tensor = 1, .micro = 1});
  planner::Problem problem{.layers = run.model.layers,
                           .global_batch = run.batch.global,
                           .sequence = run.batch.sequence,
                           .ranks = ranks,
                           .ranks_per_node = per_node,
                           .heads = run.model.heads,
                           .device = device,
                           .host = run.limits.host.count > 0 ? std::min(run.limits.host, host_memory) : host_memory,
                           .disk = !may_use_disk(run, cluster) ? base::Bytes{0}
                                   : run.limits.disk.count > 0 ? std::min(run.limits.disk, cluster.host.disk)
                                                               : cluster.host.disk,
                           .host_is_a_tier = may_use_host(run, cluster),
                           .together = processor && !limited ? whole_device : base::Bytes{},
                           .host_beside = cluster.device.cores == 0,
                           .largest = base::Bytes{std::max({whole.embedding.weights, whole.layer.weights, whole.head.weights})},
                           .prices = [inputs](const planner::PriceKey& key) { return prices_of(*inputs, key); },
                           .wires = wires_of(cluster, ranks),
                           .precisions = precisions_of(run, cluster),
                           .model_flops = model_flops(*inputs)};
  // Rows that a step does not read are not updated either (docs/memory.md), which is not for the search to choose unless it must.
  problem.rows_may_leave = problem.disk.count > 0 && rows_may_leave(run.model) && !anything_fits(run, problem);
  return problem;
}

planner::Pins pins_of(const config::Run& run) {
  planner::Pins pins;
  if (run.given("batch.micro")) pins.micro = run.batch.micro;
  if (run.strategy_auto) return pins;
  const strategy::Strategy& strategy = run.strategy;
  const auto pin = [&](std::string_view key, auto& to, const auto& value) {
    if (run.given(key)) to = value;
  };
  pin("strategy.data", pins.data, strategy.data);
  pin("strategy.tensor", pins.tensor, strategy.tensor);
  pin("strategy.pipe", pins.pipe, strategy.pipe);
  pin("strategy.chunks", pins.chunks, strategy.chunks);
  pin("strategy.zero", pins.zero, strategy.zero);
  pin("strategy.zero_group", pins.zero_group, strategy.zero_group);
  pin("strategy.keep_params", pins.keep_params, strategy.keep_params);
  pin("strategy.keep_grads", pins.keep_grads, strategy.keep_grads);
  pin("strategy.sequence_parallel", pins.sequence_parallel, strategy.sequence_parallel);
  pin("strategy.schedule", pins.schedule, strategy.schedule);
  pin("strategy.tile", pins.tile, strategy.tile);
  pin("strategy.embedding_rows", pins.rows, strategy.embedding_rows);
  pin("strategy.recompute", pins.recompute, strategy.recompute);
  pin("strategy.stages", pins.partition, strategy.partition);
  pin("strategy.offload.optimizer", pins.optimizer, planner::tier_of(strategy.offload.optimizer));
  pin("strategy.offload.params", pins.params, planner::tier_of(strategy.offload.params));
  pin("strategy.offload.gradients", pins.gradients, planner::tier_of(strategy.offload.gradients));
  pin("strategy.offload.activations", pins.activations, planner::tier_of(strategy.offload.activations));
  pins.pieces = run.given("strategy.bucket") || run.given("strategy.prefetch");
  if (strategy.partition == strategy::StagePartition::listed) pins.pipe = strategy.pipe;
  return pins;
}

planner::Space planning_space(const config::Run& run, const planner::Problem& problem) {
  const planner::Pins pins = pins_of(run);
  const std::vector<std::string> against = planner::contradictions(problem, pins, rest_of(run).more_ranks());
  if (!against.empty()) base::not_legal("{}: what the run decides cannot go together: {}", run.name, fmt::join(against, "; "));
  return planner::whole_space(problem, pins, rest_of(run));
}

config::Run decided(config::Run run, const planner::Choice& choice) {
  run.strategy = choice.strategy;
  run.strategy_auto = false;
  run.batch.micro = choice.micro;
  if (!choice.precision.empty()) run.precision = config::precision_named(choice.precision);
  run.precision_auto = false;
  return run;
}

std::int64_t fewest_nodes(const config::Run& run, const cluster::Cluster& cluster, std::int64_t most) {
  if (cluster.find(cluster::Reach::across) == nullptr) most = 1;  // nothing joins a second one
  std::int64_t enough = 1;
  while (enough <= most && !fits_on_nodes(run, cluster, enough)) enough *= 2;
  if (enough > most) return 0;
  // Between two powers of two more nodes do not always hold more, since they must divide the layers or the batch: each is tried, of
  // large clusters every 32nd part.
  const std::int64_t step = std::max<std::int64_t>(1, enough / 64);
  for (std::int64_t nodes = enough / 2 + step; nodes < enough; nodes += step) {
    if (fits_on_nodes(run, cluster, nodes)) return nodes;
  }
  return enough;
}

model::Model scaled_model(const model::Model& model, std::int64_t heads) {
  model::Model scaled = model;
  const auto share = [&](std::int64_t count) { return std::max<std::int64_t>(1, (count * heads + model.heads / 2) / model.heads); };
  scaled.heads = heads;
  scaled.kv_heads = model.kv_heads == model.heads ? heads : std::gcd(heads, model.kv_heads);
  scaled.width = heads * model.head_dim;
  scaled.ffn = share(model.ffn);
  scaled.layers = share(model.layers);
  return scaled;
}

double longest_step(const config::Run& run, const cluster::Cluster& cluster, const planner::Problem& problem, const Pace& pace) {
  if (pace.share <= 0.0) return pace.step_seconds;
  double rate = 0.0;
  for (const std::string& name : problem.precisions) {
    const auto found = cluster.device.rates.find(product_type(name.empty() ? run.precision : config::precision_named(name)));
    if (found != cluster.device.rates.end()) rate = std::max(rate, found->second);
  }
  if (rate == 0.0) rate = cluster.device.rates.at(base::DType::f32);
  const double all = static_cast<double>(problem.ranks) * rate * pace.share;
  const double seconds = problem.model_flops * static_cast<double>(problem.global_batch) / all;
  return pace.step_seconds > 0.0 ? std::min(seconds, pace.step_seconds) : seconds;
}

std::optional<model::Model> largest_model(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks, const Pace& pace,
                                          std::int64_t heads) {
  const bool any_pace = pace.share <= 0.0 && pace.step_seconds <= 0.0;
  const auto fits = [&](std::int64_t step) {
    if (heads > 0 && heads_at(step) >= heads) return false;
    config::Run other = run;
    other.model = scaled_model(run.model, heads_at(step));
    return any_pace ? anything_fits(other, cluster, ranks) : is_fast(other, cluster, ranks, pace);
  };
  // A small model cannot be dealt out to many ranks: the first that fits need not be the smallest.
  std::int64_t low = 1;
  while (low < kMostSteps && !fits(low)) low *= 2;
  if (low >= kMostSteps) return std::nullopt;
  std::int64_t high = 2 * low;
  while (high < kMostSteps && fits(high)) low = std::exchange(high, 2 * high);
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return scaled_model(run.model, heads_at(low));
}

void refuse(const config::Run& run, const cluster::Cluster& cluster, const planner::Problem& problem, const planner::Found& found) {
  if (!found.complete) {
    base::not_legal("{}: the search was cut off before it came to a strategy for {} ranks that fits; give it more time (--time-limit)",
                    run.name, problem.ranks);
  }
  if (found.least_device.count == 0) {
    base::not_legal("{}: no strategy for {} ranks can be run: {}", run.name, problem.ranks,
                    found.illegal.empty() ? "the batch cannot be divided among them" : found.illegal);
  }
  const std::int64_t nodes = fewest_nodes(run, cluster, kMostNodes);
  // What is no larger than this was estimated to do, and its plans were refused.
  const bool more = nodes * cluster.devices_per_node > problem.ranks;
  const std::string larger =
      nodes == 0 ? fmt::format("; no number of nodes does for a batch of {}; use a smaller model or sequence, or a lower precision",
                               run.batch.global)
      : more     ? fmt::format("; the smallest that does has {} node{}, {} device{}", nodes, nodes == 1 ? "" : "s",
                               nodes * cluster.devices_per_node, nodes * cluster.devices_per_node == 1 ? "" : "s")
                 : "; use a little more memory, or a smaller model or sequence";
  if (!found.elsewhere.empty()) {
    base::not_legal("{}: no strategy fits {} device{} of \"{}\" with {} each and what is beside them: {}{}", run.name, problem.ranks,
                    problem.ranks == 1 ? "" : "s", cluster.name, base::to_string(problem.device), found.elsewhere, larger);
  }
  base::not_legal("{}: no strategy fits {} device{} of \"{}\" with {} each: the least is {} on a device ({}){}", run.name, problem.ranks,
                  problem.ranks == 1 ? "" : "s", cluster.name, base::to_string(problem.device), base::to_string(found.least_device),
                  found.least_name, larger);
}

}  // namespace plimsoll::train

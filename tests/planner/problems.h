// Small planning problems with made-up prices: enough of a cluster that every choice has its price, and nothing that must be lowered.
#pragma once

#include <cmath>

#include "planner/search.h"

namespace plimsoll::tests {

struct ProblemSizes {
  std::int64_t layers = 4;
  std::int64_t batch = 8;
  std::int64_t ranks = 4;
  std::int64_t per_node = 4;
  double memory = 1.0;      // of what keeping everything whole on one rank takes
  double bandwidth = 1e10;  // between ranks
  double layer_work = 1e-3;
  std::int64_t layer_weights = 40'000'000;
  bool host = false;
  bool disk = false;
  bool types = false;  // two precisions
};

inline planner::Problem small_problem(const ProblemSizes& sizes) {
  planner::Problem problem{.layers = sizes.layers,
                           .global_batch = sizes.batch,
                           .sequence = 16,
                           .ranks = sizes.ranks,
                           .ranks_per_node = sizes.per_node,
                           .heads = 8,
                           .device = {},
                           .host = base::Bytes{sizes.host ? std::int64_t{1} << 40 : 0},
                           .disk = base::Bytes{sizes.disk ? std::int64_t{1} << 42 : 0},
                           .largest = base::Bytes{sizes.host ? sizes.layer_weights : 0},
                           .prices = {},
                           .wires = {}};
  if (sizes.types) problem.precisions = {"short", "long"};
  problem.prices = [sizes](const planner::PriceKey& key) {
    const auto micro = static_cast<double>(key.micro);
    const auto tensor = static_cast<double>(key.tensor);
    // Small pieces are less efficient, and tensor ranks talk.
    const std::int64_t width = key.precision == "short" ? 1 : 2;  // in halves of what an element takes
    const double work = sizes.layer_work * (micro + 0.3) / tensor * (key.precision == "short" ? 0.6 : 1.0);
    const double talk = key.tensor > 1 ? 0.15 * sizes.layer_work * micro : 0.0;
    const auto share = [&](std::int64_t bytes) { return bytes * width / 2 / key.tensor; };
    planner::BlockPrice layer{
        .forward = work + talk,
        .backward_input = 1.1 * work + talk,
        .backward_weight = 0.9 * work,
        .everything = {.bytes = 12'000'000 * key.micro / key.tensor, .weight_bytes = 9'000'000 * key.micro / key.tensor},
        .selective = {.bytes = 8'000'000 * key.micro / key.tensor,
                      .weight_bytes = 9'000'000 * key.micro / key.tensor,
                      .again = 0.05 * work},
        .full = {.bytes = 1'000'000 * key.micro, .weight_bytes = 9'000'000 * key.micro / key.tensor, .again = 0.9 * work + talk},
        .output = 1'000'000 * key.micro,
        .temporary_forward = 500'000 * key.micro,
        .temporary_backward = 900'000 * key.micro,
        .weights = share(sizes.layer_weights),
        .gradients = 2 * share(sizes.layer_weights),
        .optimizer = 6 * share(sizes.layer_weights),
        .update = 2e-4 / tensor,
        .flops = 3e9 * micro / tensor,
        .tensor_seconds = 2.0 * talk};
    planner::BlockPrice embedding{.forward = 0.1 * work,
                                  .backward_input = 0.05 * work,
                                  .backward_weight = 0.1 * work,
                                  .everything = {.bytes = 1'000'000 * key.micro},
                                  .selective = {.bytes = 1'000'000 * key.micro},
                                  .full = {.bytes = 1'000'000 * key.micro},
                                  .output = 1'000'000 * key.micro,
                                  .weights = share(20'000'000),
                                  .gradients = share(40'000'000),
                                  .optimizer = share(120'000'000),
                                  .update = 1e-4 / tensor};
    planner::BlockPrice head = embedding;
    head.forward = 0.7 * work;
    head.backward_input = 0.6 * work;
    head.backward_weight = 0.6 * work;
    head.output = 0;
    return planner::Prices{.embedding = embedding,
                           .layer = layer,
                           .head = head,
                           .tied_weights = share(20'000'000),
                           .tied_gradients = share(40'000'000),
                           .tied_optimizer = share(120'000'000),
                           .inputs = 1000 * key.micro};
  };
  const double bandwidth = sizes.bandwidth;
  const std::int64_t per_node = sizes.per_node;
  problem.wires.collective = [=](planner::Wires::Kind kind, std::int64_t bytes, std::int64_t members, std::int64_t stride) {
    const double rate = members * stride > per_node ? bandwidth / 4.0 : bandwidth;
    const double turns = kind == planner::Wires::Kind::all_reduce ? 2.0 : 1.0;
    const auto others = static_cast<double>(members - 1);
    return turns * others * (2e-5 + static_cast<double>(bytes) / static_cast<double>(members) / rate);
  };
  problem.wires.message = [=](std::int64_t bytes, std::int64_t stride, std::int64_t places, std::int64_t place) {
    const std::int64_t first = place * stride;
    const bool far = place + 1 == places ? places * stride > per_node : first / per_node != (first + 2 * stride - 1) / per_node;
    return planner::Wires::Hop{.seconds = 1e-5 + static_cast<double>(bytes) / (far ? bandwidth / 4.0 : bandwidth), .far = far};
  };
  problem.wires.copy = [=](std::int64_t bytes, planner::Tier tier) {
    return 1e-5 + static_cast<double>(bytes) / (tier == planner::Tier::disk ? 1e9 : 8e9);
  };
  problem.wires.host_update = [=](std::int64_t gradients, std::int64_t weights, std::int64_t optimizer, std::int64_t ranks) {
    return static_cast<double>(gradients + weights) / 5e9 + static_cast<double>(optimizer * ranks) / 2e10;
  };
  const planner::Prices prices = problem.prices({});
  const std::int64_t states = prices.layer.weights + prices.layer.gradients + prices.layer.optimizer;
  const std::int64_t whole = sizes.layers * (states + sizes.batch * prices.layer.everything.bytes);
  problem.device = base::Bytes{static_cast<std::int64_t>(sizes.memory * static_cast<double>(whole))};
  return problem;
}

}  // namespace plimsoll::tests

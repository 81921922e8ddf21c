// Prices that were asked for once, and the stages that follow from them.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "planner/problem.h"

namespace plimsoll::planner {

// One pipeline stage of a choice, for one micro-batch.
struct StagePrice {
  std::int64_t layers = 0;
  double forward = 0.0;
  double backward_input = 0.0;  // what is made again included
  double backward_weight = 0.0;
  double again = 0.0;                 // of backward_input
  double gathered_again = 0.0;        // more, where the two backward passes are apart
  double tensor_seconds = 0.0;        // of all three
  double wait = 0.0;                  // of all three, for weights and gradients in shards
  double flops = 0.0;                 // what is made again included
  std::int64_t kept = 0;              // bytes between forward and backward
  std::int64_t kept_for_weights = 0;  // bytes between the backward of inputs and that of weights
  std::int64_t temporary = 0;         // bytes at the most beside what is kept
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  double update = 0.0;
  bool first = false;  // has the embedding
  bool last = false;   // has the head

  double backward() const { return backward_input + backward_weight; }
  double work() const { return forward + backward(); }
};

PriceKey key_of(const Problem& problem, const Choice& choice);

class PriceTable {
 public:
  explicit PriceTable(PriceOf price) : price_(std::move(price)) {}

  const Prices& of(const Problem& problem, const Choice& choice);
  // Layers of each stage: as the strategy lists them, equal, or so that the costliest stage is cheapest.
  std::vector<std::int64_t> layers_of(const Problem& problem, const Choice& choice);
  const std::vector<StagePrice>& stages_of(const Problem& problem, const Choice& choice);

 private:
  PriceOf price_;
  std::map<PriceKey, Prices> known_;
  using StageKey = std::tuple<PriceKey, strategy::Recompute, strategy::StagePartition, std::int64_t>;
  std::map<StageKey, std::vector<StagePrice>> stages_;
  std::vector<StagePrice> listed_;
};

}  // namespace plimsoll::planner

// What the planner asks about a model on a cluster: the prices of its blocks, taken from the very graphs that lowering would make of
// it. A model with two layers stands for one with any number, since layers are alike.
#pragma once

#include "cluster/cluster.h"
#include "codecs/choice.h"
#include "model/model.h"
#include "model/training.h"
#include "planner/prices.h"

namespace plimsoll::train {

struct PriceInputs {
  model::Model model;
  model::Training training;  // its micro-batch holds the sequence; the samples come with the key
  cluster::Cluster cluster;
  std::int64_t ranks = 1;          // that compute and talk at the same time
  std::int64_t tensor_stride = 1;  // how far tensor ranks are apart
  codecs::Choices communication{};
  std::int64_t tokens = 0;  // of a step, all ranks together; zero: not known, and no table can be on disk
};

// Whether the model looks its tokens up in a table that nobody else needs, so that it can be on disk.
bool rows_may_leave(const model::Model& model);

// With a reason in place of prices where the model cannot be dealt out so.
planner::Prices prices_of(const PriceInputs& inputs, const planner::PriceKey& key);

planner::Wires wires_of(const cluster::Cluster& cluster, std::int64_t ranks);

// Floating-point operations of one sample, forward and backward, as published tables count them.
double model_flops(const PriceInputs& inputs);

}  // namespace plimsoll::train

// A model as the planners of the literature see it: a chain of layers, each with a time, weights and an output, to be cut into stages
// that get devices of their own. The times are ours (planner/prices.h), so that what these planners choose can stand beside what ours
// chooses.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "planner/problem.h"

namespace plimsoll::planner::named {

inline constexpr double kNever = std::numeric_limits<double>::infinity();  // seconds of what does not fit

// One layer on `tensor` devices, for one micro-batch.
struct Layer {
  double seconds = 0.0;         // forward and backward
  double again = 0.0;           // more, where all but the input is made again
  std::int64_t weights = 0;     // bytes whose gradients replicas exchange
  std::int64_t states = 0;      // bytes of weights, gradients and optimizer on a device
  std::int64_t version = 0;     // bytes of one more version of the weights
  std::int64_t kept = 0;        // bytes for the backward pass of a micro-batch
  std::int64_t kept_again = 0;  // the same where the rest is made again
  std::int64_t output = 0;      // bytes to the next layer
};

struct Chain {
  std::vector<std::int64_t> tensor_degrees;  // in rising order
  std::vector<std::vector<Layer>> layers;    // by degree, then by layer
  std::int64_t devices = 1;
  std::int64_t devices_per_node = 1;
  std::int64_t micro = 1;          // samples in a micro-batch
  std::int64_t micro_batches = 1;  // of a batch, all replicas together
  Bytes device = {};               // memory
  double inside = 1.0;             // bytes a second between devices of a node
  double across = 1.0;             // and of different nodes

  std::size_t size() const { return layers.front().size(); }
  const std::vector<Layer>& at(std::int64_t tensor) const;
  double bandwidth(std::int64_t devices_together) const { return devices_together > devices_per_node ? across : inside; }
};

// Layers [first, last) on data x tensor devices.
struct Stage {
  std::size_t first = 0;
  std::size_t last = 0;
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  bool again = false;  // recomputes

  bool operator==(const Stage&) const = default;
};

struct Answer {
  std::vector<Stage> stages;
  double objective = kNever;  // in the planner's own terms; infinite where nothing fits
  std::int64_t micro = 0;     // samples, where the planner chooses them
};

Answer pipedream(const Chain& chain);
Answer two_buffered(std::span<const Chain> chains);  // one for each micro-batch that it may choose, in rising order
Answer piper(const Chain& chain);
Answer flexflow(const Chain& chain, std::uint64_t seed = 1);
Answer alpa_inter(const Chain& chain);

// The same restrictions and objectives, every possibility tried: for small chains.
Answer brute_pipedream(const Chain& chain);
Answer brute_two_buffered(std::span<const Chain> chains);
Answer brute_piper(const Chain& chain);
Answer brute_flexflow(const Chain& chain);
Answer brute_alpa_inter(const Chain& chain);

// What a batch takes with these stages in one common count: micro-batches through a pipeline whose stages deal them out to their replicas,
// then the exchange of gradients.
double batch_seconds(const Chain& chain, const std::vector<Stage>& stages);

// "layers 1-6 on 4 x 2, 7-12 on 4 x 2" : data x tensor
std::string describe(const std::vector<Stage>& stages);

// The same with neighbouring layers put together until there are at most `most`, as Alpa and Piper do with long chains.
Chain coarse(const Chain& chain, std::size_t most);
// Stages of the coarse chain in layers of the fine one.
std::vector<Stage> refined(const Chain& fine, const Chain& coarse, std::vector<Stage> stages);

// The chain of a problem for micro-batches of `micro` samples: the embedding belongs to the first layer, the head to the last.
Chain chain_of(const Problem& problem, std::int64_t micro, double inside, double across);

}  // namespace plimsoll::planner::named

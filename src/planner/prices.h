// What the planner knows of a model: seconds and bytes of its three kinds of blocks (embedding, layer, head) as one rank of the
// tensor axis has them, for one micro-batch. Whoever can lower a graph fills them in (train/foresight/prices.h), so that the planner counts
// the very values that lowering keeps and the very collectives that it inserts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/dtype.h"

namespace plimsoll::planner {

// Where something lives; farther is larger.
enum class Tier : std::uint8_t { device, host, disk };

// What the prices depend on.
struct PriceKey {
  std::int64_t tensor = 1;
  std::int64_t micro = 1;  // samples
  bool sequence_parallel = false;
  bool masters = false;        // the optimizer lives elsewhere than the weights, and has f32 copies of them whatever their type
  bool rows = false;           // the token table is on disk, and a step's rows of it are here
  std::string precision = {};  // one of those that the problem allows; empty: the only one
  bool accumulates = true;     // a step has several micro-batches: gradients are sums of them, in f32 whatever the weights' type

  auto operator<=>(const PriceKey&) const = default;
};

// How a block's backward pass gets what it reads: kept, or made again with less kept.
struct Keeping {
  std::int64_t bytes = 0;         // of a micro-batch between forward and backward, the block's output included
  std::int64_t weight_bytes = 0;  // of a micro-batch between the backward of inputs and that of weights, where the two are apart
  double again = 0.0;             // seconds before the backward pass
  double flops = 0.0;             // of that
};

// Seconds and bytes of one block; tensor collectives are in the seconds.
struct BlockPrice {
  double forward = 0.0;
  double backward_input = 0.0;
  double backward_weight = 0.0;
  double gathered_again = 0.0;  // seconds more where the gradients of weights come apart from those of inputs
  Keeping everything;
  Keeping selective;
  Keeping full;
  std::int64_t output = 0;              // what the next block reads
  std::int64_t temporary_forward = 0;   // at the most, where only the output is kept
  std::int64_t temporary_backward = 0;  // the same, with what selective recompute makes again left out
  std::int64_t weights = 0;             // bytes in the type the model computes with
  std::int64_t gradients = 0;           // bytes as they are summed over micro-batches
  std::int64_t optimizer = 0;           // bytes of masters and moments
  double update = 0.0;                  // seconds for all of it on the device
  double flops = 0.0;                   // forward and backward, of the rank
  double tensor_seconds = 0.0;          // of forward and backward, what collectives take
};

struct Prices {
  BlockPrice embedding;
  BlockPrice layer;
  BlockPrice head;
  // Bytes of a weight that embedding and head share, and that lies on both ends of a pipeline.
  std::int64_t tied_weights = 0;
  std::int64_t tied_gradients = 0;
  std::int64_t tied_optimizer = 0;
  std::int64_t inputs = 0;  // bytes of a micro-batch's tokens and targets
  // Of most parameters, of their gradients, and of what blocks hand on.
  base::DType weight_type = base::DType::f32;
  base::DType gradient_type = base::DType::f32;
  base::DType output_type = base::DType::f32;
  std::int64_t output_columns = 1;
  // A token table on disk: its bytes with the optimizer's state of it, and of these, what a step brings and takes back.
  std::int64_t table = 0;
  std::int64_t table_moved = 0;
  std::string reason{};  // why there are no prices: the model cannot be dealt out so
};

using PriceOf = std::function<Prices(const PriceKey&)>;

// What moves between ranks outside of the tensor axis. Neighbours on an axis are `stride` ranks apart.
struct Wires {
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather };
  // By the slowest of all groups; bytes of the whole.
  std::function<double(Kind kind, std::int64_t bytes, std::int64_t members, std::int64_t stride)> collective;
  // Along a pipeline of `places`, from one to the next (behind the last comes the first); the wires of a far one leave the node.
  struct Hop {
    double seconds = 0.0;
    bool far = false;
  };
  std::function<Hop(std::int64_t bytes, std::int64_t stride, std::int64_t places, std::int64_t place)> message;
  double slowed = 0.0;  // of the seconds of a collective that computing hides, those that computing takes longer
  // Between the device and a slower tier, while all ranks of the node do so.
  std::function<double(std::int64_t bytes, Tier tier)> copy;
  // Optimizer in the host's memory: gradients out, weights back and the update there, of a rank whose node has `ranks` like it.
  std::function<double(std::int64_t gradients, std::int64_t weights, std::int64_t optimizer, std::int64_t ranks)> host_update;
};

}  // namespace plimsoll::planner

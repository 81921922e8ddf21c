// From a model's forward pass to complete graphs: the way in for the rest of the system.
#pragma once

#include <functional>

#include "graph/builder.h"
#include "model/model.h"

namespace plimsoll::graph {

using WriteForward = std::function<void(Builder&)>;

// Forward, loss, backward and update. `done` is told of the passes that made it (pass_table.h).
Graph training_graph(const WriteForward& forward, const model::Training& training, const PassDone& done = {});
Graph training_graph(const model::Model& model, const model::Training& training);

// Forward and losses, without dropout or gradients.
Graph evaluation_graph(const WriteForward& forward, const model::Training& training);
Graph evaluation_graph(const model::Model& model, const model::Training& training);

// Forward to logits.
Graph inference_graph(const WriteForward& forward, const model::Training& training);
Graph inference_graph(const model::Model& model, const model::Training& training);

// The next tokens of a text: training.micro_batch tokens behind those in a cache of `slots` positions, which they join.
// Without logits the graph ends where the last of them is in the cache: what reads a prompt.
struct Continuation {
  std::int64_t slots = 1;
  bool logits = true;
};
Graph continuation_graph(const WriteForward& forward, const model::Training& training, const Continuation& continuation);

}  // namespace plimsoll::graph

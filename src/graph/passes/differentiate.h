// Reverse-mode differentiation of a graph. What it appends is a part of the graph like any other, so it can be differentiated again:
//   const std::vector<ValueId> gradients = differentiate(graph, std::vector<Objective>{{loss}}, weights);
//   // the Hessian's product with a direction: the gradient of <gradients, direction>
//   const std::vector<Objective> along = {{gradients[0], direction[0]}, {gradients[1], direction[1]}};
//   const std::vector<ValueId> product = differentiate(graph, along, weights);
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace plimsoll::graph {

// A part of what is differentiated: the sum of the root's elements, each times its weight.
struct Objective {
  ValueId root;
  // Of the root's type. Losses may go without: each then counts `factor` times what the step scalars say (loss scale over valid targets).
  ValueId weight{};
  double factor = 1.0;
};

// Appends what computes the derivatives of the sum of the objectives by each of `by` and returns them in this order: of each value's
// shape, invalid where no objective depends on it. `accumulates`: parameters' gradients are f32, for micro-batches to add to.
std::vector<ValueId> differentiate(Graph& graph, std::span<const Objective> of, std::span<const ValueId> by, bool accumulates = false);

// Appends the backward pass of the losses, `graph.results[0]`, and sets the gradient of every parameter that is not frozen.
void append_backward(Graph& graph, bool accumulates);

}  // namespace plimsoll::graph

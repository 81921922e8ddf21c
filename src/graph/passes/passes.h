// Rewrites of a graph, one file each. Fusion runs on the forward graph, before differentiation, so that a fused
// operator's own adjoint is used.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "model/training.h"

namespace plimsoll::graph {

// linear + activation -> one operator that gives both the result and what the gradient needs.
void fuse_linear_activation(Graph& graph);

// residual sum + norm, where both are in one block.
void fuse_residual_norm(Graph& graph);

// input gradient of a linear layer + gradient of the activation before it. After differentiation.
void fuse_activation_grad(Graph& graph);

// Linear layers on 8-bit operands (precision fp8), scaled by the largest values of so many micro-batches before, or (0) by each tensor's
// own. After differentiation; a graph without a backward pass is taken too.
void quantize_linear(Graph& graph, std::int64_t history);

// Frozen matrices in a form of fewer bytes, decoded where a block's pass reads them. Last: of the whole graph.
Graph store_frozen(const Graph& graph, const ops::FormInfo& form);

// The element type of a parameter's gradient.
base::DType gradient_dtype(const TensorType& parameter, bool accumulates);

struct HeadFusion {
  bool gradients = false;    // training: the gradients of the head come out of the same pass
  bool accumulates = false;  // more than one micro-batch
};

// head + cross-entropy; the logits are never stored.
void fuse_head_loss(Graph& graph, const HeadFusion& fusion);

// Appends norm, verdict, update and the closing of the step, with master copies and optimizer states.
void append_update(Graph& graph, const model::Training& training);

// Removes the marked nodes and renumbers the rest.
void erase_nodes(Graph& graph, const std::vector<bool>& dead);

}  // namespace plimsoll::graph

// Optimizer state in slower tiers: masters and moments live in the host's memory (ZeRO-Offload) or on disk, and the update is made
// by the host. Group by group, gradients go out and state comes in, the update runs, weights go back in the type the model computes
// with and state goes back to the disk; while one group is updated, the next one's operands are on their way in and the last one's
// results on their way out. A group is some parameters of a block, or a part of a large one, so what is under way at once is bounded
// by the bucket, whatever the size of the model and of its largest tensor.
//
// Where nothing has to be known of all gradients before the first update, a group is updated under the backward pass, behind the block
// that completes its gradients, which pass through two buckets of the host's memory by turns. Else updates follow the verdict, in the order
// in which the next forward pass needs the weights.
//
// Updates that are a step late have their gradients when the step begins. The host makes them under the forward and the backward pass; a
// weight changes when the backward pass has done with it, and the gradient that comes takes the place of the one that was used.
//
// Updates that wait for the next step (carry_update.h) have their gradients there too. Each is made ahead of the first use of its weight.
//
// It is the last pass over the graph: whatever ranks share out, a rank moves what it updates.
#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "graph/graph.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// Memory of the host that gradients pass through on their way to an update under the backward pass: gradients.bucket0, ...
inline constexpr std::string_view kBucketName = "gradients.bucket";

struct OffloadOptions {
  strategy::TierShare share = {.host = 1.0};  // of the bytes of optimizer state; the rest stays on the device and is updated there
  base::Bytes bucket{};
  bool under_backward = false;  // nothing waits for a verdict, and no weights of other versions are wanted later
  bool beside = false;          // the host is another processor than the device
  bool stages = false;          // pipeline stages run in between
  bool ahead_of_use = false;    // updates of the step before: ahead of the first use of each weight
  std::int64_t prefetch = 2;    // by so many stretches
};

// Graphs without an update stay as they are. A trained parameter whose weight is in another tier than its optimizer state must have a
// master of its own (model::Training::masters).
graph::Graph offload_optimizer(const graph::Graph& graph, const OffloadOptions& options);

}  // namespace plimsoll::lowering

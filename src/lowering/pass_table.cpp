#include "lowering/pass_table.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "graph/live_rows.h"
#include "graph/programs/pass_table.h"
#include "lowering/layout/versions.h"
#include "lowering/passes/block_chain.h"
#include "lowering/passes/carry_update.h"
#include "lowering/passes/encode_activations.h"
#include "lowering/passes/fetch_weights.h"
#include "lowering/passes/offload.h"
#include "lowering/passes/send_copies.h"
#include "lowering/passes/share_amaxes.h"
#include "lowering/passes/split_data.h"
#include "lowering/passes/split_tensor.h"
#include "lowering/passes/square_early.h"
#include "lowering/passes/store_activations.h"
#include "lowering/passes/store_gradients.h"
#include "lowering/passes/tile.h"
#include "lowering/rows.h"

namespace plimsoll::lowering {

namespace {

using graph::Graph;

plan::Tier tier_of(const strategy::TierShare& share) { return share.disk > 0.0 ? plan::Tier::disk : plan::Tier::host; }

bool in_stages(const PassInputs& inputs) { return inputs.strategy.pipe > 1; }

bool updates_when(const Graph& graph, const PassInputs& inputs, HostUpdate when) { return inputs.update == when && has_update(graph); }

// The norm of gradients is asked for before they are all in one place: some leave, are used up, or wait for the next step.
bool gradients_go(const Graph& graph, const PassInputs& inputs) {
  return has_update(graph) &&
         (inputs.strategy.offload.gradients.anything() || inputs.update == HostUpdate::under_backward || graph.pending.valid());
}

// Ranks that share out tensors or samples.
AmaxRanks amax_ranks(const PassInputs& inputs) {
  AmaxRanks ranks{.axes = {}, .in_turn = !inputs.mesh.even() && inputs.strategy.data > 1};
  for (const ops::Shares shares : {ops::Shares::tensors, ops::Shares::batch}) {
    for (const plan::MeshAxis& entry : inputs.mesh.table()) {
      const std::int32_t members = inputs.mesh.extent(entry.row.axis, inputs.rank);
      if (entry.row.shares == shares && !entry.row.part_of.valid() && members > 1) ranks.axes.emplace_back(entry.row.axis, members);
    }
  }
  return ranks;
}

Graph move_update(const Graph& graph, const PassInputs& inputs) {
  return offload_optimizer(graph, {.share = inputs.strategy.offload.optimizer,
                                   .bucket = inputs.strategy.bucket,
                                   .under_backward = updates_when(graph, inputs, HostUpdate::under_backward),
                                   .beside = inputs.host_beside,
                                   .stages = in_stages(inputs),
                                   .ahead_of_use = updates_when(graph, inputs, HostUpdate::under_forward) && !inputs.waiting_update_only,
                                   .prefetch = inputs.strategy.prefetch});
}

constexpr std::array kPasses{
    Pass{"split_pipe", "keeps the stages of one place on the pipe axis, with messages to and from the others",
         [](const Graph&, const PassInputs& inputs) { return inputs.pipe.places > 1; },
         [](const Graph& graph, const PassInputs& inputs) { return split_over_pipe(graph, inputs.pipe, inputs.pipe_place, inputs.corner); },
         false, true},
    Pass{"split_tensor", "keeps one place on the tensor axis, with collectives where an operator's need and what there is differ",
         [](const Graph&, const PassInputs& inputs) { return inputs.seat.members > 1; },
         [](const Graph& graph, const PassInputs& inputs) { return split_over_tensor(graph, inputs.seat, inputs.strategy); }},
    Pass{"encode_activations", "lets a codec say what tensor ranks and stages send each other of activations",
         [](const Graph&, const PassInputs& inputs) {
           return inputs.strategy.communication.activations.any() && (inputs.pipe.places > 1 || inputs.seat.members > 1);
         },
         [](const Graph& graph, const PassInputs& inputs) { return encode_activations(graph, inputs.strategy.communication.activations); }},
    Pass{"recompute", "makes again, before the backward pass reads it, what the forward pass did not keep",
         [](const Graph&, const PassInputs& inputs) { return inputs.backward && !inputs.again.steps.empty(); },
         [](const Graph& graph, const PassInputs& inputs) { return recompute(graph, inputs.again); }, true},
    Pass{"split_backward", "parts the gradients of weights from those of inputs, for schedules that run them apart",
         [](const Graph&, const PassInputs& inputs) { return inputs.splits_backward; },
         [](const Graph& graph, const PassInputs&) { return split_backward(graph); }},
    // Before this all ranks of the tensor axis have the same messages, so that what leads to one is in the same pass on all of them,
    // also where those of a narrower stage take it from a few.
    Pass{"route_messages", "addresses messages between stages that have degrees of their own",
         [](const Graph&, const PassInputs& inputs) { return !inputs.mesh.even(); },
         [](const Graph& graph, const PassInputs& inputs) { return route_messages(graph, inputs.mesh, inputs.seat); }},
    Pass{"tile", "cuts weights larger than \"tile\" into tiles of rows, each a parameter and a block of its own",
         [](const Graph&, const PassInputs& inputs) { return inputs.strategy.tile.count > 0; },
         [](const Graph& graph, const PassInputs& inputs) { return tile_weights(graph, inputs.strategy.tile); }, true},
    Pass{"split_data", "reduces gradients over data ranks, and shares out states, gradients and weights as the ZeRO stage says",
         [](const Graph& graph, const PassInputs& inputs) { return sums_over_ranks(graph, inputs.strategy); },
         [](const Graph& graph, const PassInputs& inputs) {
           return split_over_data(graph, inputs.strategy, {.micro_batches = inputs.micro_batches, .may_skip = needs_verdict(graph)});
         },
         true},
    Pass{"share_amaxes", "takes the largest magnitudes of 8-bit products over all ranks that compute with them",
         [](const Graph& graph, const PassInputs& inputs) { return !amax_ranks(inputs).axes.empty() && notes_amaxes(graph); },
         [](const Graph& graph, const PassInputs& inputs) { return share_amaxes(graph, amax_ranks(inputs)); }},
    Pass{"split_activations", "leaves each tensor rank a part of the activations that all of them have",
         [](const Graph&, const PassInputs& inputs) { return inputs.strategy.split_activations && inputs.seat.members > 1; },
         [](const Graph& graph, const PassInputs& inputs) {
           return store_activations(graph, {.prefetch = 0, .stages = in_stages(inputs), .blocks = {}, .among = inputs.seat});
         }},
    Pass{"store_activations", "takes activations to a slower tier behind each block, and back ahead of its backward pass",
         [](const Graph&, const PassInputs& inputs) { return inputs.strategy.offload.activations.anything(); },
         [](const Graph& graph, const PassInputs& inputs) {
           const strategy::TierShare& share = inputs.strategy.offload.activations;
           return store_activations(graph, {.tier = tier_of(share),
                                            .prefetch = inputs.strategy.prefetch,
                                            .stages = in_stages(inputs),
                                            .share = share.host + share.disk,
                                            .blocks = inputs.again.leaving});
         },
         true},
    Pass{"carry_update", "leaves the host's update to the next step, where it runs ahead of the first use of each weight",
         [](const Graph& graph, const PassInputs& inputs) { return updates_when(graph, inputs, HostUpdate::under_forward); },
         [](const Graph& graph, const PassInputs& inputs) { return carry_update(graph, inputs.strategy.offload.optimizer); }, true},
    Pass{"square_early", "adds each gradient to the norm as soon as it is complete", gradients_go,
         [](const Graph& graph, const PassInputs&) { return square_early(graph); }, true},
    Pass{"store_gradients", "takes gradients to a slower tier behind each block, and back where micro-batches add to them",
         [](const Graph&, const PassInputs& inputs) { return inputs.strategy.offload.gradients.anything(); },
         [](const Graph& graph, const PassInputs& inputs) {
           return store_gradients(
               graph,
               {.tier = tier_of(inputs.strategy.offload.gradients), .micro_batches = inputs.micro_batches, .stages = in_stages(inputs)});
         },
         true},
    Pass{"fetch_weights", "brings weights from a slower tier ahead of each block",
         [](const Graph&, const PassInputs& inputs) { return inputs.strategy.offload.params.anything(); },
         [](const Graph& graph, const PassInputs& inputs) {
           return fetch_weights(
               graph, {.tier = tier_of(inputs.strategy.offload.params), .prefetch = inputs.strategy.prefetch, .stages = in_stages(inputs)});
         },
         true},
    Pass{"waiting_update", "keeps the update that a step left to the next, and nothing else",
         [](const Graph&, const PassInputs& inputs) { return inputs.waiting_update_only; },
         [](const Graph& graph, const PassInputs&) { return waiting_update(graph); }, true},
    Pass{"offload", "moves the update to where the optimizer's state is, with copies between the tiers around it",
         [](const Graph&, const PassInputs& inputs) { return inputs.strategy.offload.optimizer.anything(); }, move_update, true},
    Pass{"send_copies", "lets the host's updates make, in the same pass over memory, what leaves for the device",
         [](const Graph& graph, const PassInputs& inputs) { return inputs.host_beside && updates_on_host(graph); },
         [](const Graph& graph, const PassInputs&) { return send_copies(graph); }, true},
};

}  // namespace

std::span<const Pass> passes() { return kPasses; }

std::vector<PassLine> all_passes() {
  std::vector<PassLine> lines;
  for (const graph::BuildPass& pass : graph::build_passes()) lines.push_back({pass.name, pass.does});
  lines.push_back({kEmbeddingRows, "puts a table of the rows that a step reads in the place of a token table on disk"});
  for (const Pass& pass : kPasses) lines.push_back({pass.name, pass.does});
  return lines;
}

graph::Graph run_passes(const graph::Graph& graph, const PassInputs& inputs, PassRange range, const graph::PassDone& done) {
  const bool bounded = graph::LiveRows(graph).any();
  std::optional<graph::Graph> made;
  for (const Pass& pass : kPasses) {
    const graph::Graph& before = made ? *made : graph;
    if (range != PassRange::all && pass.of_place != (range == PassRange::of_place)) continue;
    if (!pass.applies(before, inputs)) continue;
    if (bounded && !pass.bounded_rows) {
      base::not_legal(
          "the rows of a micro-batch are bounded, which \"{}\" cannot work with yet ({}); data ranks, recompute, tiles and other tiers can",
          pass.name, pass.does);
    }
    made = pass.run(before, inputs);
    graph::verify(*made, pass.name);
    if (done) done(pass.name, *made);
  }
  if (made) return std::move(*made);
  return graph;
}

}  // namespace plimsoll::lowering

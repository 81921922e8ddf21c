#include "graph/programs/pass_table.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/live_rows.h"
#include "graph/name_pattern.h"
#include "graph/passes/differentiate.h"
#include "graph/passes/passes.h"
#include "graph/scalar_chains.h"

namespace plimsoll::graph {

namespace {

void freeze(Graph& graph, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (Parameter& parameter : graph.parameters) {
      if (!matches_name(pattern, parameter.name)) continue;
      parameter.frozen = true;
      any = true;
    }
    if (!any) {
      base::bad_input("\"freeze\": no parameter matches \"{}\"; the first parameters are {} and {}", pattern, graph.parameters.front().name,
                      graph.parameters.back().name);
    }
  }
  const bool some_trained = std::any_of(graph.parameters.begin(), graph.parameters.end(), [](const Parameter& p) { return !p.frozen; });
  if (!some_trained) base::bad_input("\"freeze\": every parameter is frozen; expected at least one to train");
}

void store_in_form(Graph& graph, const BuildInputs& inputs) {
  if (inputs.training.freeze.empty()) {
    base::bad_input("\"freeze_as\" is the form of frozen weights, but \"freeze\" names none; say which (\"freeze\": [\"blocks.*\"])");
  }
  graph = store_frozen(graph, *inputs.training.freeze_as);
}

void sum_losses(Graph& graph) {
  const BlockId last{static_cast<std::uint32_t>(graph.blocks.size() - 1)};
  graph.add_node(ops::SumLoss{}, {ScalarChains(graph).newest(graph.scalars), graph.results.at(0)}, last, Phase::forward, "scalars.loss");
}

bool always(const BuildInputs&) { return true; }
bool trains(const BuildInputs& inputs) { return inputs.purpose == Purpose::train; }
bool has_losses(const BuildInputs& inputs) { return inputs.purpose != Purpose::infer; }
// All programs of a run have the same weights, so all of them know which are frozen and stored in a form.
bool stores_frozen(const BuildInputs& inputs) { return inputs.training.freeze_as != nullptr; }

constexpr std::array kPasses{
    BuildPass{"freeze", "marks the parameters that are not trained",
              [](const BuildInputs& inputs) { return !inputs.training.freeze.empty() && (trains(inputs) || stores_frozen(inputs)); },
              [](Graph& graph, const BuildInputs& inputs) { freeze(graph, inputs.training.freeze); }},
    // Fusion comes before differentiation, so that a fused operator's own adjoint is used.
    BuildPass{"fuse_linear_activation", "makes a linear layer and the activation behind it one operator", always,
              [](Graph& graph, const BuildInputs&) { fuse_linear_activation(graph); }},
    BuildPass{"fuse_residual_norm", "makes a residual sum and the norm behind it one operator", always,
              [](Graph& graph, const BuildInputs&) { fuse_residual_norm(graph); }},
    BuildPass{"fuse_head_loss", "makes head and cross-entropy one operator, so that logits are never stored",
              [](const BuildInputs& inputs) { return has_losses(inputs) && inputs.training.fused_head; },
              [](Graph& graph, const BuildInputs& inputs) {
                fuse_head_loss(graph, {.gradients = trains(inputs), .accumulates = inputs.training.accumulates});
              }},
    BuildPass{"sum_losses", "adds the losses of a micro-batch to the step's", has_losses,
              [](Graph& graph, const BuildInputs&) { sum_losses(graph); }},
    BuildPass{"differentiate", "appends the backward pass: the gradient of every parameter that is trained", trains,
              [](Graph& graph, const BuildInputs& inputs) { append_backward(graph, inputs.training.accumulates); }},
    BuildPass{"quantize_linear", "computes linear layers on 8-bit operands",
              [](const BuildInputs& inputs) { return has_losses(inputs) && inputs.training.precision == model::Precision::fp8; },
              [](Graph& graph, const BuildInputs& inputs) { quantize_linear(graph, trains(inputs) ? inputs.training.amax_history : 0); }},
    BuildPass{"fuse_activation_grad", "makes a linear layer's input gradient and that of the activation before it one operator", trains,
              [](Graph& graph, const BuildInputs&) { fuse_activation_grad(graph); }},
    BuildPass{"update", "appends norm, verdict and update, with master copies and the optimizer's states", trains,
              [](Graph& graph, const BuildInputs& inputs) { append_update(graph, inputs.training); }},
    BuildPass{"keep_scalars", "leaves no results but the step's scalars, which have what a step tells", has_losses,
              [](Graph& graph, const BuildInputs&) { graph.results.clear(); }},
    BuildPass{"remove_unused", "drops what nobody reads", always, [](Graph& graph, const BuildInputs&) { remove_unused(graph); }},
    BuildPass{"store_frozen", "stores frozen matrices in fewer bytes, decoded where a block reads them", stores_frozen, store_in_form},
};

}  // namespace

std::span<const BuildPass> build_passes() { return kPasses; }

void run_build_passes(Graph& graph, const BuildInputs& inputs, const PassDone& done) {
  for (const BuildPass& pass : kPasses) {
    if (!pass.applies(inputs)) continue;
    pass.run(graph, inputs);
    verify(graph, pass.name);
    if (done) done(pass.name, graph);
  }
  [[maybe_unused]] const LiveRows rows(graph);  // refuses what needs all rows
}

}  // namespace plimsoll::graph

#include "graph/training.h"

#include <algorithm>

#include "graph/live_rows.h"
#include "graph/models/models.h"
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

ops::Form form_of(model::FrozenForm form) {
  switch (form) {
    case model::FrozenForm::fp8: return ops::Form::fp8;
    case model::FrozenForm::int4: return ops::Form::int4;
    default: return ops::Form::int8;
  }
}

// All programs of a run have the same weights, so all of them know which are frozen and stored in a form.
Graph with_stored_weights(const Graph& graph, const model::Training& training) {
  if (training.freeze_as == model::FrozenForm::none) return graph;
  if (training.freeze.empty()) {
    base::bad_input("\"freeze_as\" is the form of frozen weights, but \"freeze\" names none; say which (\"freeze\": [\"blocks.*\"])");
  }
  Graph stored = store_frozen(graph, form_of(training.freeze_as));
  verify(stored, "storing frozen weights");
  return stored;
}

BuildOptions options_for(Purpose purpose, const model::Training& training) {
  return {.purpose = purpose, .precision = training.precision, .micro_batch = training.micro_batch, .segmented = training.segmented};
}

Graph forward_graph(const BuildOptions& options, const WriteForward& forward, const model::Training& training) {
  const Purpose purpose = options.purpose;
  Builder build(options);
  forward(build);
  Graph graph = std::move(build).finish();
  verify(graph, "building");
  if (purpose == Purpose::train || training.freeze_as != model::FrozenForm::none) freeze(graph, training.freeze);
  fuse_linear_activation(graph);
  fuse_residual_norm(graph);
  if (purpose != Purpose::infer) {
    if (training.fused_head) fuse_head_loss(graph, {.gradients = purpose == Purpose::train, .accumulates = training.accumulates});
    const BlockId last{static_cast<std::uint32_t>(graph.blocks.size() - 1)};
    graph.add_node(ops::SumLoss{}, {ScalarChains(graph).newest(graph.scalars), graph.results[0]}, last, Phase::forward, "scalars.loss");
  }
  [[maybe_unused]] const LiveRows rows(graph);  // refuses what needs all rows
  verify(graph, "fusion");
  return graph;
}

WriteForward writer_of(const model::Model& model) {
  return [model](Builder& build) { build_forward(model, build); };
}

}  // namespace

Graph training_graph(const WriteForward& forward, const model::Training& training) {
  Graph graph = forward_graph(options_for(Purpose::train, training), forward, training);
  append_backward(graph, training.accumulates);
  if (training.precision == model::Precision::fp8) quantize_linear(graph, training.amax_history);
  fuse_activation_grad(graph);
  append_update(graph, training);
  graph.results.clear();  // what a step tells is in its scalars
  remove_unused(graph);
  verify(graph, "differentiation");
  return with_stored_weights(graph, training);
}

Graph evaluation_graph(const WriteForward& forward, const model::Training& training) {
  Graph graph = forward_graph(options_for(Purpose::evaluate, training), forward, training);
  if (training.precision == model::Precision::fp8) quantize_linear(graph, 0);
  graph.results.clear();  // the sum of the losses is in the scalars
  remove_unused(graph);
  verify(graph, "removing what is not used");
  return with_stored_weights(graph, training);
}

Graph inference_graph(const WriteForward& forward, const model::Training& training) {
  Graph graph = forward_graph(options_for(Purpose::infer, training), forward, training);
  remove_unused(graph);
  verify(graph, "removing what is not used");
  return with_stored_weights(graph, training);
}

Graph continuation_graph(const WriteForward& forward, const model::Training& training, const Continuation& continuation) {
  BuildOptions options = options_for(Purpose::infer, training);
  options.cache_slots = continuation.slots;
  options.logits = continuation.logits;
  Graph graph = forward_graph(options, forward, training);
  remove_unused(graph);
  verify(graph, "removing what is not used");
  return with_stored_weights(graph, training);
}

Graph training_graph(const model::Model& model, const model::Training& training) { return training_graph(writer_of(model), training); }
Graph evaluation_graph(const model::Model& model, const model::Training& training) { return evaluation_graph(writer_of(model), training); }
Graph inference_graph(const model::Model& model, const model::Training& training) { return inference_graph(writer_of(model), training); }

std::vector<ValueId> saved_values(const Graph& graph) {
  std::vector<bool> read(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::backward) continue;
    for (ValueId id : node.inputs) read[id.index] = true;
  }
  std::vector<ValueId> saved;
  for (std::uint32_t index = 0; index < graph.values.size(); ++index) {
    const Value& value = graph.values[ValueId{index}];
    if (read[index] && value.producer.valid() && graph.nodes[value.producer].phase == Phase::forward) saved.push_back(ValueId{index});
  }
  return saved;
}

}  // namespace plimsoll::graph
